"""A collection: items in their places."""

from dataclasses import replace

import pytest

from fewlabels.errors import InputError
from fewlabels.labeling.collection import Collection, Extraction
from fewlabels.labeling.inputs import Named


def test_the_key_changes_with_the_place_of_any_item(blobs):
    whole = Collection.of_features(blobs)
    assert whole.key == Collection.of_features(blobs).key
    without_first = replace(
        whole, names=whole.names[1:], features=whole.features[1:]
    )  # with the fingerprint that it had
    others = {
        without_first.key,
        replace(whole, names=whole.names[::-1]).key,
        replace(whole, features=whole.features + 1).key,
    }
    assert len({whole.key, *others}) == 4


def test_backbones_by_quality_are_known_by_their_names(tmp_path):
    both = "efficientnet-lite0+efficientnet-lite2"
    assert [Extraction(each).name for each in (None, "fast", "good", "best", "conv4")] == [
        "efficientnet-lite0",
        "efficientnet-lite0",
        "efficientnet-lite2",
        both,
        "conv4",
    ]
    project = Named(tmp_path, tmp_path, tmp_path / "features.safetensors", both)
    project.check_backbone("best")
    project.check_backbone(both)
    with pytest.raises(InputError, match=r"a project of features by efficientnet-lite0\+.*'fast'"):
        project.check_backbone("fast")
