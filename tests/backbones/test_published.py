"""Published checkpoints: small files of the same form, and features of the original network."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from fewlabels.backbones import load_backbone
from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import FileFormatError

# importlib mode: tests are no package, so the neighbour is loaded by its path
_spec = importlib.util.spec_from_file_location(
    "published_oracles", Path(__file__).with_name("published.py")
)
oracles = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracles)

NORMALIZE = "normalize(0.485 0.456 0.406, 0.229 0.224 0.225)"
S2M2, SIMPLESHOT = (
    f"square(96, bilinear) | crop(84) | {NORMALIZE}",
    f"resize(84, bilinear) | crop(84) | {NORMALIZE}",
)
CASES = {  # our name: (their network, where the weights are, wrapper, transform)
    "tiny-wrn": (oracles.s2m2_wrn, "state", "module.", S2M2),
    "tiny-resnet18-3x3": (oracles.resnet, "state", "", S2M2),
    "tiny-wrn-simpleshot": (oracles.simpleshot_wrn, "state_dict", "module.", SIMPLESHOT),
    "tiny-conv4-flat": (oracles.simpleshot_conv4, "state_dict", "module.", SIMPLESHOT),
    "tiny-mobilenet": (oracles.simpleshot_mobilenet, "state_dict", "module.", SIMPLESHOT),
    "tiny-densenet": (oracles.simpleshot_densenet, "state_dict", "module.", SIMPLESHOT),
}


def images(seed, size=32):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(seed))


def publish(path, name, *, drop=(), **save):
    """A file as its authors save it, and a function that gives their features."""
    network, container, wrapper, _ = CASES[name]
    net = oracles.Published()
    with torch.no_grad():
        network(net, images(0))
    state = {
        wrapper + key: value for key, value in net.state.items() if not key.endswith(tuple(drop))
    }
    torch.save(
        {
            "epoch": 3,
            container: state,
            "rotate": {"0.weight": torch.zeros(4, 2)},
            "best_prec1": 0.6,
        },
        path,
        **save,
    )
    return lambda x: network(net, x)


@pytest.mark.parametrize("name", CASES)
def test_features_are_those_of_their_network(name, tmp_path):
    theirs = publish(tmp_path / "470.tar", name)
    saved = load_backbone(tmp_path / "470.tar", name=name)
    x = images(1)
    with torch.inference_mode():
        expected, found = theirs(x), saved.backbone.eval()(x)
    assert expected.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * expected.std().item())
    assert saved.transform == CASES[name][3] == str(ImageTransform.parse(saved.transform))
    assert saved.provenance["file"] == "470.tar"


@pytest.mark.parametrize(
    "name", ["tiny-resnet18-3x3", "tiny-wrn-simpleshot", "tiny-conv4-flat", "tiny-mobilenet"]
)
def test_the_architecture_is_found_out(name, tmp_path):
    publish(tmp_path / "470.tar", name)
    assert load_backbone(tmp_path / "470.tar").name == name


def test_the_container_tells_simpleshot_from_the_authors(tmp_path):
    publish(tmp_path / "authors.tar", "tiny-resnet18-3x3")
    torch.save(
        {"state_dict": torch.load(tmp_path / "authors.tar", weights_only=True)["state"]},
        tmp_path / "simpleshot.tar",
    )
    assert load_backbone(tmp_path / "authors.tar").transform == S2M2
    assert load_backbone(tmp_path / "simpleshot.tar").transform == SIMPLESHOT


def test_old_files_and_bare_state_dicts(tmp_path):
    theirs = publish(
        tmp_path / "old.tar",
        "tiny-wrn",
        drop=["num_batches_tracked"],
        _use_new_zipfile_serialization=False,
    )
    content = torch.load(tmp_path / "old.tar", weights_only=True)["state"]
    torch.save(content, tmp_path / "bare.pth")
    # S2M2's rotation stage wraps the network once more and calls the classifier otherwise
    stage_one = {
        f"feature.{key.removeprefix('module.')}".replace("feature.linear", "classifier"): value
        for key, value in content.items()
    }
    torch.save({"state": stage_one}, tmp_path / "rotation.tar")
    for file in ("old.tar", "bare.pth", "rotation.tar"):
        torch.testing.assert_close(
            load_backbone(tmp_path / file).backbone.eval()(images(1)),
            theirs(images(1)),
            rtol=1e-3,
            atol=1e-3,
        )


def test_another_architecture_is_named_with_what_was_expected_and_found(tmp_path):
    publish(tmp_path / "theirs.pth.tar", "tiny-resnet18-3x3")
    with pytest.raises(FileFormatError) as caught:
        load_backbone(tmp_path / "theirs.pth.tar", name="tiny-wrn")
    text = str(caught.value)
    assert "theirs.pth.tar must be a checkpoint of tiny-wrn; " in text
    assert "; compared with tiny-wrn of S2M2 and the authors" in text
    assert "stem.weight is 4x3x3x3 instead of 16x3x3x3" in text
    assert " more. Name the right file" in text


def test_another_width_is_named_by_its_shapes(tmp_path):
    publish(tmp_path / "small.tar", "tiny-wrn")
    with pytest.raises(
        FileFormatError,
        match=r"with wrn28-10 of S2M2 and the authors, stages.0.0.conv1.weight is 32x16x3x3 inst",
    ):
        load_backbone(tmp_path / "small.tar", name="wrn28-10")


def test_no_known_backbone(tmp_path):
    torch.save({"state_dict": {"encoder.weight": torch.zeros(2, 2)}}, tmp_path / "x.pth")
    with pytest.raises(
        FileFormatError,
        match=r"must be a checkpoint of a known backbone; compared with .* is missing",
    ):
        load_backbone(tmp_path / "x.pth")


def test_an_architecture_without_published_weights(tmp_path):
    publish(tmp_path / "x.tar", "tiny-wrn")
    with pytest.raises(FileFormatError, match="must be a safetensors file for resnet12"):
        load_backbone(tmp_path / "x.tar", name="resnet12")


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_an_unsafe_pickle_is_refused_and_not_run(tmp_path, zipped):
    torch.save(
        {"state": Malicious(tmp_path / "owned")},
        tmp_path / "evil.tar",
        _use_new_zipfile_serialization=zipped,
    )
    with pytest.raises(FileFormatError, match=r"evil.tar must hold only tensors and plain data"):
        load_backbone(tmp_path / "evil.tar")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, zipped, keep):
    publish(tmp_path / "cut.tar", "tiny-conv4-flat", _use_new_zipfile_serialization=zipped)
    content = (tmp_path / "cut.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(
        content[: keep if isinstance(keep, int) else int(keep * len(content))]
    )
    with pytest.raises(FileFormatError, match=r"cut\.tar"):
        load_backbone(tmp_path / "cut.tar")


@pytest.mark.parametrize(
    "content", [[torch.zeros(2)], {}, {"state": {"a": 1}}, {"state": None}, torch.zeros(3)]
)
def test_a_file_without_named_tensors(tmp_path, content):
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(FileFormatError, match="must hold tensors by name"):
        load_backbone(tmp_path / "x.pth")
