"""Plain folders: classes, order, and what is skipped."""

import os

import numpy as np
import pytest

from fewlabels.data import Problem, read_images
from fewlabels.errors import FileFormatError


def test_sub_folders_are_classes_and_images_at_any_depth_are_theirs(write, tmp_path):
    for name in [
        "leek/b.png",
        "leek/a.PNG",
        "leek/deep/er/c.JPG",
        "cabbage/x.jpeg",
        "kaiser/x.tiff",
        "kaiser/y.Bmp",
    ]:
        write(name)
    images = read_images(tmp_path)
    assert images.class_names == ("cabbage", "kaiser", "leek")
    assert images.names == (
        "cabbage/x.jpeg",
        "kaiser/x.tiff",
        "kaiser/y.Bmp",
        "leek/a.PNG",
        "leek/b.png",
        "leek/deep/er/c.JPG",
    )
    assert images.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert (images.name, images.split, images.problems) == (tmp_path.name, "all", ())
    assert images.path(0) == tmp_path / "cabbage/x.jpeg"


def test_flat_images_are_unlabelled_also_beside_classes(write, tmp_path):
    write("b.png")
    write("a.webp")
    assert read_images(tmp_path).labels.tolist() == [-1, -1]
    write("leek/c.gif")
    images = read_images(str(tmp_path))
    assert (images.names, images.labels.tolist(), images.class_names) == (
        ("a.webp", "b.png", "leek/c.gif"),
        [-1, -1, 0],
        ("leek",),
    )


def test_a_class_is_never_torn_by_the_order_of_names(write, tmp_path):
    for name in ["a/x.png", "a-b/x.png", "a/y.png"]:  # "-" comes before "/"
        write(name)
    images = read_images(tmp_path)
    assert images.names == ("a/x.png", "a/y.png", "a-b/x.png")
    assert images.class_names == ("a", "a-b")


def test_hidden_and_other_files_are_left_out_in_silence(write, tmp_path):
    write("leek/a.png")
    for name in [
        ".hidden/a.png",
        "leek/._a.png",
        "__MACOSX/leek/a.png",
        "leek/.DS_Store",
        "LICENSE",
        "leek/notes.txt",
        "leek/.git/x.png",
    ]:
        write(name, content=b"x")
    images = read_images(tmp_path, strict=True)
    assert images.names == ("leek/a.png",)
    assert images.problems == ()


def test_what_is_passed_over_is_named(write, tmp_path, tmp_path_factory):
    write("leek/a.png")
    write("leek/empty.png", content=b"")
    write("empty/only.jpg", content=b"")
    (tmp_path / "void").mkdir()
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.png").write_bytes((tmp_path / "leek/a.png").read_bytes())
    (tmp_path / "leek/out.png").symlink_to(outside / "x.png")
    (tmp_path / "out").symlink_to(outside, target_is_directory=True)
    (tmp_path / "leek/dead.png").symlink_to("nothing.png")
    (tmp_path / "leek/inside.png").symlink_to("a.png")
    (tmp_path / "leek/notes.txt").symlink_to("nothing.txt")  # no image by its name
    images = read_images(tmp_path)
    assert images.names == ("leek/a.png", "leek/inside.png")
    assert sorted(images.problems) == [
        Problem("empty/only.jpg", "the file is empty"),
        Problem("leek/dead.png", "a broken link"),
        Problem("leek/empty.png", "the file is empty"),
        Problem("leek/out.png", "a link out of the folder"),
        Problem("out", "a link out of the folder"),
        Problem("void", "the folder holds no images and is not a class"),
    ]
    with pytest.raises(
        FileFormatError, match=r"got 6 that cannot \(the first: .*Repair or remove them"
    ):
        read_images(tmp_path, strict=True)


def test_a_link_to_the_folder_itself_lists_nothing_twice(write, tmp_path):
    write("leek/1.png")
    (tmp_path / "again").symlink_to(tmp_path)
    found = read_images(tmp_path)
    assert found.names == ("leek/1.png",)
    assert [problem.name for problem in found.problems] == ["again"]


def test_rings_of_links_end(write, tmp_path):
    write("a/x.png")
    write("b/y.png")
    (tmp_path / "a/up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a/over").symlink_to(tmp_path / "b", target_is_directory=True)
    (tmp_path / "b/back").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "a/self.png").symlink_to("self.png")
    images = read_images(tmp_path)
    assert {name for name in images.names if name.count("/") == 1} == {"a/x.png", "b/y.png"}
    assert "a/over/y.png" in images.names
    assert {str(problem) for problem in images.problems} >= {
        "a/up: a link to a folder above it",
        "a/over/back: a link to a folder above it",
        "a/self.png: a broken link",
    }


def test_a_root_that_is_a_link_is_fine(write, tmp_path, tmp_path_factory):
    write("leek/a.png")
    link = tmp_path_factory.mktemp("links") / "here"
    link.symlink_to(tmp_path, target_is_directory=True)
    images = read_images(link)
    assert images.names == ("leek/a.png",)
    assert images.problems == ()
    np.testing.assert_array_equal(images.read(0), read_images(tmp_path).read(0))


def test_pipes_are_not_opened(write, tmp_path):
    write("leek/a.png")
    os.mkfifo(tmp_path / "leek/pipe.png")
    assert read_images(tmp_path).problems == (Problem("leek/pipe.png", "not a regular file"),)


def test_a_closed_folder_is_named(write, tmp_path):
    write("leek/a.png")
    closed = write("leek/closed/b.png").parent
    closed.chmod(0)
    try:
        if not os.access(closed, os.R_OK):  # the superuser opens all
            assert read_images(tmp_path).problems == (
                Problem("leek/closed", "the folder cannot be opened (Permission denied)"),
            )
    finally:
        closed.chmod(0o755)


def test_what_cannot_be_seen_is_passed_over_and_named_once(write, tmp_path):
    write("leek/a.png")
    for name in ("class", "leek/deeper", "leek/b.png", "c.png"):
        (tmp_path / name).symlink_to("x" * 300)  # no file system takes such a name
    images = read_images(tmp_path)
    assert images.names == ("leek/a.png",)
    assert sorted(problem.name for problem in images.problems) == [
        "c.png",
        "class",
        "leek/b.png",
        "leek/deeper",
    ]
    assert {problem.reason for problem in images.problems} == {
        "it cannot be accessed (File name too long)"
    }


def test_a_path_that_cannot_be_opened_is_refused_in_words(tmp_path):
    with pytest.raises(FileFormatError, match=r"cannot be opened \(File name too long\)"):
        read_images(tmp_path / ("x" * 300))


@pytest.mark.skipif(not os.path.lexists("/proc/1/cwd"), reason="needs /proc")
def test_a_link_to_where_one_may_not_go(write, tmp_path):
    """As /proc has many; the superuser may follow it, and it then leaves the folder."""
    write("leek/a.png")
    (tmp_path / "leek/cwd").symlink_to("/proc/1/cwd")
    assert [problem.name for problem in read_images(tmp_path).problems] == ["leek/cwd"]


def test_names_can_always_be_printed(write, tmp_path):
    write("leek/a.png")
    (tmp_path / "leek/a.png").rename(tmp_path / "leek" / os.fsdecode(b"\xff\x1b[31m.png"))
    images = read_images(tmp_path)
    assert images.names == ("leek/\\udcff\\x1b[31m.png",)
    images.names[0].encode()
    assert images.read(0).size == (8, 6)


def test_missing_empty_and_file_instead_of_folder(write, tmp_path):
    with pytest.raises(FileFormatError, match=r"nowhere does not exist\. Check the path"):
        read_images(tmp_path / "nowhere")
    with pytest.raises(
        FileFormatError, match=r"x\.zip is a file, not a folder of images\. Unpack it"
    ):
        read_images(write("files/x.zip", content=b"PK"))
    with pytest.raises(
        FileFormatError, match=r"files must hold images \(\.jpg, .*got none\. Check the path"
    ):
        read_images(tmp_path / "files")
    write("files/x.png", content=b"")
    with pytest.raises(FileFormatError, match=r"got none \(the first: x\.png: the file is empty\)"):
        read_images(tmp_path / "files")


def test_real_groceries(real):
    images = read_images(real / "grocery-demo", strict=True)
    assert (len(images), len(images.class_names), set(images.class_sizes.tolist())) == (
        700,
        20,
        {35},
    )
    assert images.class_names[0] == "Alpro-Vanilla-Soyghurt"
    assert min(images.read(0).size) == 128
