"""FeatureRecipe: everything that a feature vector depends on besides its image, and its key."""

import json
from dataclasses import asdict, dataclass

from fewlabels.io.stamps import short_hash

VERSION = (
    1  # of what `extract` computes and of the files of the store; raise it when either changes
)


@dataclass(frozen=True)
class FeatureRecipe:
    """How an image becomes a row of features.

    >>> recipe = FeatureRecipe(backbone="conv4", weights="0" * 32, views="center",
    ...                        transform="resize(36) | crop(32)", precision="float32", dim=64)
    >>> recipe.key
    '0e62638262a3c29831d5d6a10fc152cc'
    """

    backbone: str
    weights: str  # digest of the network's tensors
    transform: str
    views: str
    precision: str  # that the network computes in
    dim: int
    dtype: str = "float32"  # of the rows

    @property
    def key(self) -> str:
        """32 hex digits that name the recipe."""
        return short_hash(self.to_json().encode(), digits=32)

    def to_json(self) -> str:
        """The recipe as readable text, from which the key is computed."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1, sort_keys=True)
