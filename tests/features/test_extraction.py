"""Rows equal those of a plain loop, are computed once, and survive interruptions."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from fewlabels.backbones import build_backbone, save_backbone
from fewlabels.backbones.encoder import Encoder, load_encoder
from fewlabels.data import ImageSet, read_images
from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureStore, extract, keeper
from fewlabels.features.extraction import Progress, make_recipe

TOLERANCE = 1e-5


@pytest.fixture
def store(tmp_path):
    return FeatureStore(tmp_path / "store")


def plain_rows(images, encoder, *, flip=False):
    """One image after the other, in float64."""
    transform, module = ImageTransform.parse(encoder.transform), nn.Sequential(encoder.module)
    rows = []
    for index in range(len(images)):
        pixels = transform(images.read(index))[None]
        views = [pixels, torch.flip(pixels, [3])] if flip else [pixels]
        rows.append(np.mean([module(view).numpy().astype(float) for view in views], axis=0)[0])
    return np.stack(rows)


def count_reads(notes):
    return sum(what == "read" for what, _ in notes)


def swap(path, other):
    """Other bytes of the same length, and the time of writing set back."""
    before = path.stat()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


# Right rows


def test_rows_are_those_of_a_plain_loop(make_images, make_encoder):
    images, _ = make_images(range(11))
    found = extract(images, [make_encoder()], store=None)
    np.testing.assert_allclose(found.features, plain_rows(images, make_encoder()), atol=TOLERANCE)
    assert found.features.dtype == np.float32
    assert found.labels.tolist() == images.labels.tolist()
    assert (found.class_names, found.names) == (images.class_names, images.names)


def test_flip_is_the_mean_with_the_mirror_image(make_images, make_encoder):
    images, _ = make_images(range(5))
    found = extract(images, [make_encoder()], store=None, views="flip")
    np.testing.assert_allclose(
        found.features, plain_rows(images, make_encoder(), flip=True), atol=TOLERANCE
    )
    assert not np.allclose(found.features, plain_rows(images, make_encoder()), atol=1e-3)


def test_several_encoders_stand_side_by_side(make_images, make_encoder, store):
    images, _ = make_images(range(5))
    encoders = [make_encoder(0), make_encoder(1, dim=7, transform="square(10)", name="other")]
    found = extract(images, encoders, store=store)
    np.testing.assert_allclose(
        found.features,
        np.hstack([plain_rows(images, encoder) for encoder in encoders]),
        atol=TOLERANCE,
    )
    assert found.provenance["backbone"] == "tiny+other"
    assert found.provenance["transform"].endswith("0.2 0.2 0.2) + square(10)")


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batch_size=st.integers(1, 12),
    n_workers=st.integers(0, 3),
    numbers=st.lists(st.integers(0, 9), min_size=1, unique=True),
)
def test_batches_workers_and_neighbours_change_nothing(
    make_images, make_encoder, batch_size, n_workers, numbers
):
    everything, _ = make_images(range(10))
    expected = plain_rows(everything, make_encoder())[numbers]
    images, _ = make_images(numbers)
    found = extract(
        images, [make_encoder()], store=None, batch_size=batch_size, n_workers=n_workers
    )
    np.testing.assert_allclose(found.features, expected, atol=TOLERANCE)


def test_a_trained_backbone_by_the_path_of_its_file(tmp_path, make_images):
    backbone, transform = build_backbone("conv4", image_size=32), "resize(36) | crop(32)"
    save_backbone(
        tmp_path / "conv4.safetensors",
        backbone,
        name="conv4",
        options={"image_size": 32},
        transform=transform,
        provenance={},
    )
    encoder = load_encoder(tmp_path / "conv4.safetensors")
    images, _ = make_images(range(3), suffix=".png")
    found = extract(images, [encoder], store=None)
    np.testing.assert_allclose(found.features, plain_rows(images, encoder), atol=TOLERANCE)
    assert found.provenance == {
        "dataset": "photos",
        "split": "all",
        "backbone": "conv4",
        "weights": encoder.weights_digest,
        "transform": transform,
        "views": "center",
        "precision": "float32",
    }


def test_images_in_memory(make_encoder, store):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), dtype=np.uint8)
    images = ImageSet.from_array(pixels, [0, 0, 0, 1, 1, -1], ["a", "b"])
    for _ in range(2):
        found = extract(images, [make_encoder()], store=store)
        np.testing.assert_allclose(
            found.features, plain_rows(images, make_encoder()), atol=TOLERANCE
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", TOLERANCE), ("bfloat16", 0.03)])
def test_cuda_gives_the_rows_of_the_cpu(make_images, make_encoder, precision, tolerance):
    images, _ = make_images(range(9))
    found = extract(
        images, [make_encoder()], store=None, device="cuda", precision=precision, batch_size=4
    )
    np.testing.assert_allclose(found.features, plain_rows(images, make_encoder()), atol=tolerance)


# Computed once


def test_a_second_time_nothing_is_read(make_images, make_encoder, store):
    images, notes = make_images(range(9))
    first = extract(images, [make_encoder()], store=store)
    notes.clear()
    stages = []
    second = extract(
        images, [make_encoder()], store=FeatureStore(store.root), on_progress=stages.append
    )
    assert first.fingerprint == second.fingerprint
    assert second.names == images.names
    assert count_reads(notes) == 0
    assert not [progress for progress in stages if progress.stage == "extract"]


def test_only_new_images_are_computed_and_renamed_ones_are_not_new(
    make_images, make_encoder, store
):
    images, _ = make_images(range(9))
    extract(images, [make_encoder()], store=store)
    images.path(4).rename(images.path(4).with_name("77.bmp"))
    images, notes = make_images([0, 1, 77, 12, 8])
    found = extract(images, [make_encoder()], store=store)
    assert [name for what, name in notes if what == "read"] == ["12.bmp"]
    np.testing.assert_allclose(found.features, plain_rows(images, make_encoder()), atol=TOLERANCE)


def test_an_image_that_stands_there_twice_is_computed_once(
    make_images, make_encoder, store, tmp_path
):
    images, _ = make_images([1, 2])
    (tmp_path / "photos" / "31.bmp").write_bytes(images.path(0).read_bytes())
    images, notes = make_images([1, 2, 31])
    found = extract(images, [make_encoder()], store=store)
    assert count_reads(notes) == 2
    assert found.features[0].tolist() == found.features[2].tolist()
    np.testing.assert_allclose(found.features, plain_rows(images, make_encoder()), atol=TOLERANCE)


def test_an_image_is_read_once_for_all_encoders_that_miss_it(make_images, make_encoder, store):
    encoders = [make_encoder(0), make_encoder(1, transform="square(10)"), make_encoder(2, dim=2)]
    some, _ = make_images([0, 3, 5])
    extract(some, encoders[:1], store=store)
    images, notes = make_images(range(7))
    found = extract(images, encoders, store=store, batch_size=2)
    assert count_reads(notes) == 7
    np.testing.assert_allclose(
        found.features,
        np.hstack([plain_rows(images, encoder) for encoder in encoders]),
        atol=TOLERANCE,
    )
    notes.clear()
    again = extract(images, encoders[::-1], store=store)
    assert count_reads(notes) == 0
    assert (
        again.features.tolist()
        == np.hstack(np.split(found.features, [5, 10], axis=1)[::-1]).tolist()
    )


def test_a_damaged_shard_is_computed_again(make_images, make_encoder, store):
    images, notes = make_images(range(9))
    first = extract(images, [make_encoder()], store=store)
    [shard] = store.root.rglob("shard-*")
    shard.write_bytes(shard.read_bytes()[:100])
    notes.clear()
    with pytest.warns(UserWarning, match="is damaged"):
        again = extract(images, [make_encoder()], store=store)
    assert count_reads(notes) == 9
    assert again.fingerprint == first.fingerprint


# Never stale


@pytest.mark.usefixtures("trusting")
def test_other_bytes_of_the_same_length_and_time_give_other_features(
    make_images, make_encoder, store
):
    images, _ = make_images(range(4))
    other = make_images([9], folder="elsewhere")[0]
    time.sleep(0.03)
    first = extract(images, [make_encoder()], store=store)
    swap(images.path(2), other.path(0))
    second = extract(images, [make_encoder()], store=store)
    np.testing.assert_allclose(second.features, plain_rows(images, make_encoder()), atol=TOLERANCE)
    assert (first.features != second.features).any(axis=1).tolist() == [False, False, True, False]


def test_weights_transform_views_and_precision_have_keys_of_their_own(make_encoder):
    first = make_encoder()
    encoders = [
        first,
        make_encoder(1),
        make_encoder(transform="crop(9)"),
        make_encoder(name="other"),
    ]
    recipes = [make_recipe(encoder, views="center", precision="float32") for encoder in encoders]
    recipes += [
        make_recipe(first, views="flip", precision="float32"),
        make_recipe(first, views="center", precision="bfloat16"),
    ]
    assert len({recipe.key for recipe in recipes}) == 6
    loosely = Encoder(
        "tiny", first.module, first.transform.replace(" | ", "|"), 5, first.weights_digest
    )
    assert make_recipe(loosely, views="center", precision="float32").key == recipes[0].key


def test_weights_transform_and_views_give_rows_of_their_own(make_images, make_encoder, store):
    images, _ = make_images(range(3))
    for encoder in (make_encoder(), make_encoder(1), make_encoder(transform="crop(9)")):
        for flip in (False, True):
            found = extract(images, [encoder], store=store, views="flip" if flip else "center")
            np.testing.assert_allclose(
                found.features, plain_rows(images, encoder, flip=flip), atol=TOLERANCE
            )


@pytest.mark.parametrize("settled", [False, True])
def test_an_image_that_changes_while_it_is_read_is_not_kept(
    make_images, make_encoder, store, monkeypatch, settled
):
    images, notes = make_images(range(4))
    other = make_images([9], folder="elsewhere")[0]
    if settled:
        monkeypatch.setattr("fewlabels.features.file_digests.RACY_NS", 10_000_000)
        time.sleep(0.03)
    watched = type(images.sources[0])
    plain = watched.read

    def swap_and_read(source):
        if source.path.name == "2.bmp":
            swap(source.path, other.path(0))
        return plain(source)

    monkeypatch.setattr(watched, "read", swap_and_read)
    content = images.path(2).read_bytes()
    extract(images, [make_encoder()], store=store)
    monkeypatch.undo()
    images.path(2).write_bytes(content)
    notes.clear()
    found = extract(images, [make_encoder()], store=store)
    np.testing.assert_allclose(found.features, plain_rows(images, make_encoder()), atol=TOLERANCE)
    assert ("read", "2.bmp") in notes


# Bad images and bad arguments


@pytest.mark.parametrize("with_store", [False, True])
def test_images_that_cannot_be_read_are_left_out_and_named(
    make_images, make_encoder, store, with_store
):
    images, _ = make_images(range(9))
    images.path(3).write_bytes(b"no image")
    images.path(5).unlink()
    for _ in range(2):
        with pytest.warns(
            UserWarning,
            match=r"2 of 9 images cannot be read .* left out: 3\.bmp, 5\.bmp\. The first: .*3\.bmp",
        ):
            found = extract(
                images, [make_encoder()], store=store if with_store else None, batch_size=2
            )
        usable = [0, 1, 2, 4, 6, 7, 8]
        assert found.names == tuple(f"{number}.bmp" for number in usable)
        assert found.labels.tolist() == images.labels[usable].tolist()
        np.testing.assert_allclose(
            found.features, plain_rows(images.subset(usable), make_encoder()), atol=TOLERANCE
        )


def test_a_batch_of_which_no_image_can_be_read(make_images, make_encoder):
    images, _ = make_images(range(6))
    for index in range(2, 4):
        images.path(index).write_bytes(b"")
    with pytest.warns(UserWarning, match="2 of 6 images"):
        assert len(extract(images, [make_encoder()], store=None, batch_size=2)) == 4


def test_many_failures_are_counted_and_some_are_named(make_images, make_encoder):
    images, _ = make_images(range(9))
    for index in range(1, 9):
        images.path(index).write_bytes(b"")
    with pytest.warns(
        UserWarning,
        match=r"8 of 9 images .*: 1\.bmp, 2\.bmp, 3\.bmp, 4\.bmp, 5\.bmp and 3 more\. The first",
    ):
        extract(images, [make_encoder()], store=None)


def test_strict_stops_at_the_first_and_keeps_what_was_done(make_images, make_encoder, store):
    images, notes = make_images(range(9))
    images.path(5).write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"5\.bmp cannot be read"):
        extract(images, [make_encoder()], store=store, strict=True, batch_size=1, n_workers=0)
    images, notes = make_images(range(5))
    extract(images, [make_encoder()], store=store)
    assert count_reads(notes) == 0


def test_a_folder_of_rubbish_is_an_error(make_images, make_encoder):
    images, _ = make_images(range(3))
    for index in range(3):
        images.path(index).write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"none of the 3 images can be read\. The first"):
        extract(images, [make_encoder()], store=None)


def test_an_image_too_small_for_the_transform_is_left_out(make_images, make_encoder):
    images, _ = make_images(range(3))
    Image.new("RGB", (4, 4)).save(images.path(1))
    with pytest.warns(
        UserWarning, match=r"1 of 3 images .*1\.bmp.*crop\(8\) needs an image of at least 8"
    ):
        assert len(extract(images, [make_encoder()], store=None)) == 2


def test_a_transform_must_make_images_of_one_size(make_images, make_encoder):
    images, _ = make_images(range(3))
    Image.new("RGB", (8, 16)).save(images.path(1))
    with pytest.raises(
        InputError,
        match=r"'resize\(8\)' must make all images of one size, got \(8, 8\) and \(16, 8\)",
    ):
        extract(images, [make_encoder(transform="resize(8)")], store=None, batch_size=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"n_workers": -1}, "n_workers must be 0 or more, got -1"),
        ({"views": "mirror"}, "views must be one of center, flip, .*, got 'mirror'"),
        ({"precision": "int8"}, "precision must be one of float32, bfloat16, got 'int8'"),
        ({"precision": "bfloat16"}, "precision must be float32 on device 'cpu', got bfloat16"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, mps, got 'tpu'"),
        ({"encoders": []}, "encoders must be at least one"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(make_images, make_encoder, arguments, message):
    images, notes = make_images(range(2))
    with pytest.raises(InputError, match=message):
        extract(images, arguments.pop("encoders", [make_encoder()]), store=None, **arguments)
    assert notes == []


def test_no_images_are_refused(make_images, make_encoder):
    with pytest.raises(InputError, match="images must be at least one"):
        extract(make_images(range(2))[0].subset([]), [make_encoder()], store=None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_cuda_asked_for_and_absent(make_images, make_encoder):
    images, _ = make_images(range(2))
    with pytest.raises(InputError, match=r"device 'cuda' is not available here\. Use device='cpu'"):
        extract(images, [make_encoder()], store=None, device="cuda")
    assert len(extract(images, [make_encoder()], store=None, device="auto")) == 2


def test_a_network_that_gives_nan_or_other_shapes_is_refused_and_not_kept(
    make_images, make_encoder, store
):
    images, _ = make_images(range(3))
    broken = make_encoder(3)
    broken.module[0].bias.fill_(float("nan"))
    with pytest.raises(
        InputError, match=r"backbone tiny must give finite features, got NaN or infinity for 0\.bmp"
    ):
        extract(images, [broken], store=store)
    with pytest.raises(
        InputError,
        match=r"must give 6 numbers per image, as its feature_dim says, got shape \(3, 5\)",
    ):
        extract(images, [Encoder("odd", broken.module, "crop(8)", 6, "0" * 32)], store=store)
    assert not list(store.root.rglob("shard-*"))


# What it leaves as it was


def test_the_caller_keeps_network_and_threads(make_images, make_encoder):
    images, _ = make_images(range(3))
    encoder = make_encoder()
    encoder.module.train()
    before = {name: tensor.clone() for name, tensor in encoder.module.state_dict().items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trained_once = extract(images, [encoder], store=None, n_workers=2)
        later = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert (torch.get_num_threads(), later) == (2, [2])
    finally:
        torch.set_num_threads(threads)
    assert encoder.module.training
    assert all(
        torch.equal(before[name], tensor) for name, tensor in encoder.module.state_dict().items()
    )
    assert encoder.module[0].weight.is_contiguous()
    np.testing.assert_allclose(
        trained_once.features, plain_rows(images, make_encoder()), atol=TOLERANCE
    )


def test_progress_runs_from_none_to_all(make_images, make_encoder, store):
    images, _ = make_images(range(5))
    seen = []
    extract(images, [make_encoder()], store=store, batch_size=2, on_progress=seen.append)
    assert seen == [
        Progress("hash", 5, 5),
        *(Progress("extract", done, 5) for done in (0, 2, 4, 5)),
    ]


# Interrupted


def test_ctrl_c_keeps_what_was_done(make_images, make_encoder, store):
    images, notes = make_images(range(12))

    def press(progress):
        if progress[:3] == ("extract", 6, 12):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(images, [make_encoder()], store=store, batch_size=2, n_workers=0, on_progress=press)
    notes.clear()
    extract(images, [make_encoder()], store=store)
    assert count_reads(notes) == 6
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fewlabels")]


def test_long_work_is_kept_in_shards_as_it_goes(make_images, make_encoder, store, monkeypatch):
    monkeypatch.setattr(keeper, "SHARD_ROWS", 4)
    images, _ = make_images(range(10))
    kept = []
    extract(
        images,
        [make_encoder()],
        store=store,
        batch_size=2,
        on_progress=lambda _: kept.append(len(list(store.root.rglob("shard-*")))),
    )
    assert kept == [0, 0, 0, 1, 1, 2, 2]
    assert len(list(store.root.rglob("shard-*"))) == 3


def test_slow_work_is_kept_in_time(make_images, make_encoder, store, monkeypatch):
    monkeypatch.setattr(keeper, "KEPT_EVERY", 0.0)
    images, _ = make_images(range(4))
    extract(images, [make_encoder()], store=store, batch_size=2)
    assert len(list(store.root.rglob("shard-*"))) == 2


SLOW = """
import sys, time
from fewlabels.backbones.encoder import load_encoder
from fewlabels.data import read_images
from fewlabels.features import FeatureStore, extract, keeper
folder, weights, store, stop = *sys.argv[1:4], int(sys.argv[4])
keeper.SHARD_ROWS = 8
def slowly(progress):
    if progress.stage == "extract":
        print(progress.done, flush=True)
        time.sleep(600 if progress.done >= stop else 0.01)
encoders = [load_encoder(weights)]
found = extract(
    read_images(folder), encoders, store=FeatureStore(store), batch_size=4, n_workers=2,
    on_progress=slowly,
)
print(found.fingerprint)
"""


@pytest.fixture
def conv4(tmp_path):
    backbone = build_backbone("conv4", image_size=16)
    path, transform = tmp_path / "conv4.safetensors", "square(16)"
    save_backbone(
        path, backbone, name="conv4", options={"image_size": 16}, transform=transform, provenance={}
    )
    return path


def begin(images, conv4, store, *, stop=1000):
    """Extract in another process, which waits to be killed once `stop` images are done."""
    folder = str(images.path(0).parent)
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, folder, str(conv4), str(store.root), str(stop)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_kill_9_and_again_gives_the_same_bits_as_left_alone(make_images, conv4, store, tmp_path):
    images, _ = make_images(range(60), suffix=".png")
    images = read_images(images.path(0).parent)
    killed = begin(images, conv4, store, stop=40)
    for line in killed.stdout:
        if int(line) == 40:
            break
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(60) == -signal.SIGKILL
    killed.stdout.close()

    encoder = load_encoder(conv4)
    left_alone = extract(
        images, [encoder], store=FeatureStore(tmp_path / "fresh"), batch_size=4, n_workers=1
    )
    recipe = make_recipe(encoder, views="center", precision="float32")
    n_kept = store.get(recipe, [images.digest(i) for i in range(60)]).known.sum()
    assert 32 <= n_kept < 60  # all but the shard in progress
    seen = []
    resumed = extract(
        images, [encoder], store=store, batch_size=4, n_workers=1, on_progress=seen.append
    )
    assert seen[-1] == Progress("extract", 60 - n_kept, 60 - n_kept, n_kept)
    assert resumed.fingerprint == left_alone.fingerprint
    np.testing.assert_allclose(resumed.features, plain_rows(images, encoder), atol=TOLERANCE)


def test_two_processes_on_one_store(make_images, conv4, store):
    images, _ = make_images(range(30), suffix=".png")
    images = read_images(images.path(0).parent)
    both = [begin(images, conv4, store) for _ in range(2)]
    answers = [process.communicate(timeout=600)[0].split()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    alone = extract(images, [load_encoder(conv4)], store=None, batch_size=4)
    assert answers == [alone.fingerprint] * 2
