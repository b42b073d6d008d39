"""Text encoders by name: texts to vectors."""

from fewlabels.backbones.text.encoder import (
    TEXT_ENCODERS,
    TEXT_QUALITIES,
    TextEncoder,
    best_installed,
    load_text_encoder,
)

__all__ = ["TEXT_ENCODERS", "TEXT_QUALITIES", "TextEncoder", "best_installed", "load_text_encoder"]
