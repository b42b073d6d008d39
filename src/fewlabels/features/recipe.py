"""Recipe: all that a feature vector depends on besides its image, and the key it makes."""

import hashlib
import json
from dataclasses import asdict, dataclass

VERSION = 1  # of what `extract` computes and of the store's files: raise it when either changes


@dataclass(frozen=True)
class Recipe:
    """How an image becomes a row: change any of these and the row is another one.

    >>> recipe = Recipe(backbone="conv4", weights="0" * 32, transform="resize(36) | crop(32)", views="center", precision="float32", dim=64)
    >>> recipe.key
    '0e62638262a3c29831d5d6a10fc152cc'
    """

    backbone: str
    weights: str  # digest of the network's tensors
    transform: str
    views: str
    precision: str  # the network computes in
    dim: int
    dtype: str = "float32"  # of the rows

    @property
    def key(self) -> str:
        """Thirty-two hex digits that name the recipe."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """The recipe for a reader, and the text that the key is made of."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1, sort_keys=True)
