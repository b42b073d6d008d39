"""Predictor: what was learned from a collection, kept in a file, for images that come later one by one.

tensors    prototypes (W, D), biases (W,), mean_0 ... (1, D): float32
metadata   ptmap_model: JSON of version, class_names, pipeline, lam, temperature, backbone, provenance
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray

from fewlabels.errors import FileFormatError, InputError
from fewlabels.features.storage import reading
from fewlabels.labeling.model import Answer
from fewlabels.labeling.outcome import Outcome
from fewlabels.labeling.table import LabelRow, tabulate
from fewlabels.labeling.writing import check_writable, write_file
from fewlabels.methods.assignment import similarities
from fewlabels.preprocess import Pipeline

KEY = "ptmap_model"
VERSION = 1
HOLDS = "what `fewlabels label --model` wrote"


def check_model(path: Path) -> None:
    """Refuse a path that no model can be written to, before any work is done."""
    if path.suffix != ".safetensors":
        raise InputError(f"--model must end in .safetensors, got '{path.name}'.")
    check_writable(path)


@dataclass(frozen=True, eq=False)
class Predictor:
    """Class centers and all that it takes to compare a new feature vector with them."""

    class_names: tuple[str, ...]
    prototypes: torch.Tensor  # (W, D)
    biases: torch.Tensor  # (W,)
    lam: float
    temperature: float
    pipeline: Pipeline
    means: tuple[torch.Tensor, ...]  # that the pipeline's centerings subtract
    backbone: str  # "" where features were given
    provenance: dict[str, str]

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """What a labelling learned."""
        answer, vectors = outcome.answer, outcome.vectors
        about = outcome.source.collection.provenance
        return cls(
            outcome.class_names,
            answer.prototypes,
            answer.biases,
            answer.lam,
            answer.temperature,
            vectors.pipeline,
            vectors.means,
            outcome.source.backbone,
            about,
        )

    def predict(self, features: NDArray[np.floating[Any]]) -> Answer:
        """The share of each class in new vectors, each decided alone, (N, D) -> Answer."""
        if features.ndim != 2 or features.shape[1] != self.prototypes.shape[1]:
            raise InputError(
                f"features must have shape (N, {self.prototypes.shape[1]}) for this model, got {features.shape}."
            )
        x = torch.tensor(np.asarray(features, dtype=np.float32))
        self.pipeline.check(x, "features")
        scores = (
            self.lam
            * similarities(self.pipeline.replay(x, self.means)[None], self.prototypes[None])[0]
            + self.biases
        )
        shares = (scores / self.temperature).softmax(dim=1).numpy()
        return Answer(shares, self.prototypes, self.biases, self.lam, self.temperature)

    def rows(
        self, names: Sequence[str], features: NDArray[np.floating[Any]], *, abstain: float = 0.0
    ) -> list[LabelRow]:
        """Labels of new vectors as rows."""
        return tabulate(names, self.class_names, self.predict(features), {}, abstain=abstain)

    def save(self, path: Path) -> None:
        """Write a .safetensors file, all or nothing."""
        check_model(path)
        tensors = {"prototypes": self.prototypes, "biases": self.biases}
        tensors |= {f"mean_{number}": mean.reshape(1, -1) for number, mean in enumerate(self.means)}
        about = {
            "version": VERSION,
            "class_names": self.class_names,
            "pipeline": str(self.pipeline),
            "lam": self.lam,
            "temperature": self.temperature,
            "backbone": self.backbone,
            "provenance": self.provenance,
        }
        arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}
        write_file(
            path, safetensors.numpy.save(arrays, metadata={KEY: json.dumps(about, sort_keys=True)})
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read back what `save` wrote."""
        with reading(path, holds=HOLDS), safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise FileFormatError(
                    f"{path} is a safetensors file, but not a model of fewlabels. Make one: fewlabels label PHOTOS --model {path.name}"
                )
            about = json.loads(text)
            if about["version"] > VERSION:
                raise FileFormatError(
                    f"{path} has format version {about['version']}, this fewlabels reads up to {VERSION}. Upgrade fewlabels."
                )
            arrays = {name: torch.tensor(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - safe_open is no dict
            means = tuple(arrays[f"mean_{number}"] for number in range(len(arrays) - 2))
            names, pipeline = tuple(about["class_names"]), Pipeline.parse(about["pipeline"])
            lam, temperature = (
                float(about["lam"]),
                float(about.get("temperature", 1.0)),
            )  # files from before calibration have none
            return cls(
                names,
                arrays["prototypes"],
                arrays["biases"],
                lam,
                temperature,
                pipeline,
                means,
                about["backbone"],
                about["provenance"],
            )
