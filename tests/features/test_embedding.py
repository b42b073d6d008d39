"""The ways of accelerators, walked on a CPU: "cpu:0" is one to torch, and no "cpu" to the code."""

import numpy as np
import pytest
import torch

from fewlabels.features.embedding import Column, Network, embed_all
from fewlabels.features.extraction import make_recipe
from fewlabels.features.file_digests import Identity


def columns_of(encoders, n_images, *, precision="float32"):
    return [
        Column(
            encoder,
            make_recipe(encoder, views="flip", precision=precision),
            np.zeros((n_images, 5), "f4"),
            np.arange(n_images) == known,
        )
        for known, encoder in enumerate(encoders)
    ]


@pytest.mark.parametrize("n_workers", [0, 3])
def test_rows_do_not_depend_on_who_computes(make_images, make_encoder, n_workers):
    images, notes = make_images(range(7))
    encoders = [make_encoder(0), make_encoder(1, transform="square(10)")]
    batches = [[0, 1, 2], [3, 4], [5, 6]]
    both = []
    for device in ("cpu", "cpu:0"):
        made = embed_all(
            images,
            [Identity(None, None)] * 7,
            columns_of(encoders, 7),
            batches,
            device=device,
            n_workers=n_workers,
        )
        both.append(list(made))
    assert [batch.indices for batch in both[0]] == [
        [[1, 2], [0, 2]],
        [[3, 4], [3, 4]],
        [[5, 6], [5, 6]],
    ]
    for first, second in zip(*both, strict=True):
        assert (first.indices, first.n_images) == (second.indices, second.n_images)
        for rows, others in zip(first.rows, second.rows, strict=True):
            np.testing.assert_array_equal(rows, others)
    assert len(notes) == 2 * 7


def test_bfloat16_keeps_three_digits(make_encoder):
    encoder = make_encoder()
    pixels = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    exact, rough = (
        Network(encoder.module, column.recipe, device="cpu")(pixels) for column in _both(encoder)
    )
    assert rough.dtype == np.float32
    assert 0 < np.abs(exact - rough).max() < 0.02 * np.abs(exact).max()


def _both(encoder):
    return [
        columns_of([encoder], 1, precision=precision)[0] for precision in ("float32", "bfloat16")
    ]
