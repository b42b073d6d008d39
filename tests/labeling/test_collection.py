"""A collection: items in their places."""

from dataclasses import replace

from fewlabels.labeling.collection import Collection


def test_the_key_changes_with_the_place_of_any_item(blobs):
    whole = Collection.of_features(blobs)
    assert whole.key == Collection.of_features(blobs).key
    without_first = replace(
        whole, names=whole.names[1:], features=whole.features[1:]
    )  # with the fingerprint that it had
    others = {
        without_first.key,
        replace(whole, names=whole.names[::-1]).key,
        replace(whole, fingerprint="0" * 16).key,
    }
    assert len({whole.key, *others}) == 4
