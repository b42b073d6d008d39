"""Class folders of every benchmark, and CUB's own archive."""

import pytest

from fewlabels.data import BENCHMARKS, Problem, read_benchmark
from fewlabels.errors import FileFormatError, InputError

CUB = BENCHMARKS["cub"]


def bird(folder, number):
    return f"bird_{number}.jpg"


@pytest.fixture
def cub(tmp_path, fill):
    folder = tmp_path / "cub"
    fill([folder / name for name in CUB.split_classes("all")], bird, n_images=1)
    return folder


@pytest.mark.parametrize("place", ["", "images", "data"])
def test_class_folders(cub, place):
    root = cub if not place else cub.rename(cub.parent / place).parent
    images = read_benchmark("cub", root, split="val")
    assert images.class_names == CUB.classes["val"]
    assert images.names[0] == f"{place}/{CUB.classes['val'][0]}/bird_0.jpg".lstrip("/")
    assert images.path(0).is_file()
    assert len(read_benchmark("cub", root, split="all")) == 200


@pytest.mark.parametrize("names", [("base", "val", "novel"), ("train", "val", "test")])
def test_split_folders(tmp_path, fill, names):
    for folder, split in zip(names, ("base", "val", "novel"), strict=True):
        fill([tmp_path / folder / name for name in CUB.classes[split]], bird, n_images=1)
    images = read_benchmark("cub", tmp_path, split="novel")
    assert images.class_names == CUB.classes["novel"]
    assert images.names[0].startswith(f"{names[2]}/004.")


def test_a_class_in_two_splits_is_refused(tmp_path, fill):
    for split in CUB.classes:
        fill([tmp_path / split / name for name in CUB.classes[split]], bird, n_images=1)
    fill([tmp_path / "base" / CUB.classes["novel"][0]], bird, n_images=1)
    read_benchmark("cub", tmp_path, split="base")  # the others are fine
    with pytest.raises(
        FileFormatError,
        match=r"class '004.* must be in one split, got a folder in each of base, novel",
    ):
        read_benchmark("cub", tmp_path, split="novel")


def test_missing_and_wrong_folders(cub, tmp_path, fill):
    (cub / CUB.classes["novel"][3] / "bird_0.jpg").unlink()
    with pytest.raises(
        FileFormatError,
        match=r"all 50 novel classes of CUB, got none of 016\.Painted_Bunting\. Unpack",
    ):
        read_benchmark("cub", cub, split="novel")
    assert len(read_benchmark("cub", cub, split="base")) == 100
    fill([tmp_path / "other" / "leek"], bird, n_images=1)
    with pytest.raises(
        FileFormatError,
        match=r"CUB in one of these forms, got none: CUB archive \(CUB_200_2011/.*class folders",
    ):
        read_benchmark("cub", tmp_path / "other", split="base")
    with pytest.raises(FileFormatError, match="does not exist"):
        read_benchmark("cub", tmp_path / "nowhere", split="base")
    with pytest.raises(InputError, match="dataset must be one of"):
        read_benchmark("birds", cub, split="base")
    with pytest.raises(InputError, match="split must be one of"):
        read_benchmark("cub", cub, split="train")


def test_too_many_images_of_a_class_are_refused(tmp_path):
    classes = BENCHMARKS["cifar-fs"].classes["val"]
    for name in classes:
        (tmp_path / name).mkdir()
        for number in range(601 if name == classes[2] else 1):
            (tmp_path / name / f"{number}.png").write_bytes(b"x")
    with pytest.raises(
        FileFormatError,
        match=f"must hold 600 images of each class of CIFAR-FS, got 601 of {classes[2]}",
    ):
        read_benchmark("cifar-fs", tmp_path, split="val")


def test_passed_over_files_are_problems_of_the_set(cub):
    (cub / CUB.classes["val"][0] / "empty.jpg").write_bytes(b"")
    problems = read_benchmark("cub", cub, split="val").problems
    assert Problem(f"{CUB.classes['val'][0]}/empty.jpg", "the file is empty") in problems
    assert Problem("val", "50 images where the literature counts 2,950") in problems


@pytest.fixture
def archive(tmp_path, fill):
    root = tmp_path / "CUB_200_2011"
    names = CUB.split_classes("all")
    fill([root / "images" / name for name in names], bird, n_images=2)
    lines = [
        f"{2 * place + number + 1} {name}/bird_{number}.jpg"
        for place, name in enumerate(names)
        for number in range(2)
    ]
    (root / "images.txt").write_text("\n".join(lines) + "\n")
    return root


def test_cub_archive(archive):
    for place in (archive, archive.parent):
        images = read_benchmark("cub", place, split="base")
        assert (len(images), images.class_names) == (200, CUB.classes["base"])
        assert images.names[0].endswith("images/001.Black_footed_Albatross/bird_0.jpg")


def test_the_list_of_the_archive_decides(archive):
    folder = archive / "images" / CUB.classes["base"][0]
    (folder / "bird_0.jpg").unlink()
    (folder / "extra.jpg").write_bytes(b"x")
    (archive / "images" / CUB.classes["base"][1] / "bird_1.jpg").write_bytes(b"")
    images = read_benchmark("cub", archive, split="base")
    assert len(images) == 198
    assert images.problems[:2] == (
        Problem(
            f"images/{CUB.classes['base'][0]}/bird_0.jpg",
            "images.txt names it, but it does not exist",
        ),
        Problem(f"images/{CUB.classes['base'][1]}/bird_1.jpg", "the file is empty"),
    )
    assert len(images.problems) == 3  # the third is their count


@pytest.mark.parametrize("line", ["7", "7 x.jpg", "7 ../x/y.jpg", "7 /etc/x.jpg", "7 a/b/c.jpg"])
def test_a_damaged_list_is_named(archive, line):
    (archive / "images.txt").write_text(f"1 a/b.jpg\n{line}\n")
    with pytest.raises(FileFormatError, match=r"images\.txt: line 2 must be 'NUMBER CLASS/FILE'"):
        read_benchmark("cub", archive, split="base")


def test_real_birds(real):
    for split, count in {"base": 5_885, "val": 2_950, "novel": 2_953}.items():
        images = read_benchmark("cub", real / "cub-96", split=split)
        assert (len(images), images.problems) == (count, ())
    assert images.subset(range(0, 40)).stack(84).shape == (40, 84, 84, 3)
