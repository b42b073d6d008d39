import json
import resource
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlabels.backbones import build_backbone, load_backbone, save_backbone
from fewlabels.errors import FileFormatError, InputError

KEY = "ptmap_backbone"  # as in files from before the package was called fewlabels
ABOUT = {
    "options": {},
    "transform": "resize(36) | crop(32)",
    "provenance": {"dataset": "cifar-fs — base"},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


@pytest.fixture
def saved(path):
    save_backbone(path, build_backbone("tiny-conv4", seed=1), name="tiny-conv4", **ABOUT)
    return path


def test_everything_comes_back(tiny, path):
    backbone = build_backbone(tiny, seed=5).to(memory_format=torch.channels_last)
    backbone(torch.randn(4, 3, 32, 32))  # moves the running statistics
    save_backbone(path, backbone, name=tiny, **ABOUT)
    back = load_backbone(path)
    assert {
        "options": back.options,
        "transform": back.transform,
        "provenance": back.provenance,
        "name": back.name,
    } == ABOUT | {"name": tiny}
    before, after = backbone.state_dict(), back.backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert all(parameter.requires_grad for parameter in back.backbone.parameters())


def test_options_choose_the_stem_again(path):
    options = {"image_size": 32}
    save_backbone(
        path,
        build_backbone("tiny-resnet10", **options),
        name="tiny-resnet10",
        **ABOUT | {"options": options},
    )
    assert load_backbone(path, name="tiny-resnet10").backbone.stem[0].kernel_size == (3, 3)


@settings(max_examples=10, deadline=None)
@given(transform=st.text(), provenance=st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_words_come_back(tmp_path_factory, transform, provenance):
    path = tmp_path_factory.mktemp("words") / "x.safetensors"
    backbone = build_backbone("tiny-conv4")
    save_backbone(
        path, backbone, name="tiny-conv4", options={}, transform=transform, provenance=provenance
    )
    back = load_backbone(path)
    assert (back.transform, back.provenance) == (transform, provenance)


def test_the_same_backbone_makes_the_same_bytes(saved, tmp_path):
    save_backbone(
        tmp_path / "y.safetensors", build_backbone("tiny-conv4", seed=1), name="tiny-conv4", **ABOUT
    )
    assert saved.read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_loading_leaves_the_generator_of_torch_alone(saved):
    before = torch.get_rng_state()
    load_backbone(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(saved):
    before = saved.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))  # as on a full disk
    try:
        with pytest.raises(InputError, match=r"cannot be written \(File too large\)"):
            save_backbone(saved, build_backbone("tiny-conv4", seed=2), name="tiny-conv4", **ABOUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_a_backbone_under_another_name_is_not_written(path):
    with pytest.raises(
        InputError, match=r"backbone must be a tiny-conv4 with options \{\}, but .* instead of"
    ):
        save_backbone(path, build_backbone("conv4"), name="tiny-conv4", **ABOUT)
    assert not path.exists()


def test_another_architecture_is_refused(saved):
    with pytest.raises(
        FileFormatError, match="must hold a backbone wrn28-10, but holds tiny-conv4"
    ):
        load_backbone(saved, name="wrn28-10")


def test_an_unknown_name_is_refused_before_the_file_is_read(tmp_path):
    with pytest.raises(InputError, match="backbone must be one of"):
        load_backbone(tmp_path / "nowhere.safetensors", name="wrn28")


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileFormatError, match=r"nowhere\.safetensors does not exist"):
        load_backbone(tmp_path / "nowhere.safetensors")
    with pytest.raises(FileFormatError, match="is a folder"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 9, 200, -1])
def test_a_truncated_file_is_named(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FileFormatError, match=r"x\.safetensors"):
        load_backbone(saved)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (None, "does not hold a backbone that save_backbone wrote"),
        ("{", "cannot be read"),
        ("{}", "cannot be read"),
        ({"version": 2}, r"version 2, this fewlabels reads up to 1\. Upgrade"),
        (
            {"version": 1, "backbone": "vit", "options": {}, "transform": "", "provenance": {}},
            "a backbone vit, which this fewlabels does not know",
        ),
        (
            {"version": 1, "backbone": "conv4", "options": {}, "transform": "", "provenance": {}},
            "does not hold the conv4 that its header names",
        ),
        (
            {
                "version": 1,
                "backbone": "conv4",
                "options": {"depth": 3},
                "transform": "",
                "provenance": {},
            },
            "cannot be read",
        ),
    ],
)
def test_metadata_of_others_or_of_the_future(path, about, message):
    metadata = (
        None if about is None else {KEY: about if isinstance(about, str) else json.dumps(about)}
    )
    safetensors.torch.save_file({"a": torch.ones(2)}, path, metadata=metadata)
    with pytest.raises(FileFormatError, match=message) as caught:
        load_backbone(path)
    assert str(path) in str(caught.value)


def test_a_header_that_begins_like_a_pickle_is_no_pickle(path):
    for padding in range(130):  # some header length makes the first byte 0x80
        provenance = {"padding": "x" * 8 * padding}
        save_backbone(
            path,
            build_backbone("tiny-conv4"),
            name="tiny-conv4",
            **ABOUT | {"provenance": provenance},
        )
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    assert load_backbone(path).provenance == provenance


def without_digest(path):
    """The header but for its digest, and the bytes of the tensors."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = json.loads(content[8:start])
    (known,) = found.pop("__metadata__").values()
    header = json.loads(known)
    header.pop("digest", None)
    return found, header, content[start:]


def test_a_file_of_an_older_version_is_read_and_written_with_a_digest_more(tmp_path):
    path = Path(__file__).parents[2] / "artifacts" / "cifar-fs" / "conv4" / "backbone.safetensors"
    saved = load_backbone(path)
    save_backbone(
        tmp_path / "x.safetensors",
        saved.backbone,
        name=saved.name,
        options=saved.options,
        transform=saved.transform,
        provenance=saved.provenance,
    )
    assert without_digest(tmp_path / "x.safetensors") == without_digest(path)
