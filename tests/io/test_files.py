import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.files import (
    check_apart,
    check_suffix,
    check_writable,
    copy_file,
    make_folder,
    read_checked,
    reading,
    remove_temporaries,
    require_file,
    unwritable,
    write_checked,
    write_file,
)

NOT_FOR_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_written_and_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "new" / "folder" / "a.bin"
    write_file(path, b"one", durable=durable)
    assert path.read_bytes() == b"one"
    write_file(path, lambda file: [file.write(b"t"), file.write(b"wo")], durable=durable)
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["a.bin"]


def test_a_file_has_the_rights_of_any_other_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_file(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_longest_name_a_file_may_have_can_be_written(tmp_path):
    write_file(tmp_path / ("é" * 127), b"x")  # 254 of 255 bytes
    assert names(tmp_path) == ["é" * 127]


def test_a_full_disk_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    write_file(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as on a full disk
    try:
        with pytest.raises(InputError, match=r"a\.bin cannot be written \(File too large\)\. Free"):
            write_file(path, bytes(10_000), way_out="Free some space.")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_an_error_of_the_writer_keeps_the_old_file_and_is_not_changed(tmp_path):
    path = tmp_path / "a.bin"
    write_file(path, b"old")

    def fail(file):
        file.write(b"half")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write_file(path, fail)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for action in (
        lambda path: write_file(path, b""),
        make_folder,
        check_writable,
    ):
        with pytest.raises(InputError, match=r"cannot be written .*\. Choose another path\."):
            action(tmp_path / "file" / "below" / "a.csv")


@NOT_FOR_ROOT
def test_a_folder_without_permission_is_refused(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for action in (lambda path: write_file(path, b""), check_writable):
        with pytest.raises(InputError, match="Permission denied"):
            action(closed / "a.csv")
    with pytest.raises(InputError, match="Permission denied"):
        make_folder(closed)


def test_a_folder_is_made_empty(tmp_path):
    folder = tmp_path / "a" / "b"
    assert make_folder(folder) == folder
    assert names(folder) == []
    assert make_folder(folder) == folder  # a second time too


def test_a_folder_is_not_a_file_to_write(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)


def test_only_stale_temporary_files_of_the_name_are_removed(tmp_path):
    long = "x" * 60
    left = [
        ".state.pt.0a1b2c3d",
        ".state.pt.0a1b2c3d.fewlabels",
        f".{long[:32]}.00000000.fewlabels",
    ]
    others = ["state.pt", ".state.pt.bak", ".state.pt.0a1b2c3d4", ".git", "b.00000000", long]
    others += [".theirs.00000000", "b.00000000.fewlabels"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    (tmp_path / ".folder.00000000").mkdir()
    assert [path.name for path in remove_temporaries(tmp_path, "state.pt")] == left[:2]
    assert [path.name for path in remove_temporaries(tmp_path)] == left[2:]
    assert names(tmp_path) == sorted([*others, ".folder.00000000"])
    assert remove_temporaries(tmp_path / "nowhere") == []


def test_a_killed_write_leaves_a_file_that_is_found_again(tmp_path):
    path = tmp_path / ("weights of a very long name, " * 5 + ".pt")
    program = (
        "import os, sys, pathlib\n"
        "from fewlabels.io.files import write_file\n"
        "write_file(pathlib.Path(sys.argv[1]), lambda _: os._exit(9))"
    )
    assert subprocess.run([sys.executable, "-c", program, path], check=False).returncode == 9
    assert len(names(tmp_path)) == 1
    assert path.name not in names(tmp_path)
    assert len(remove_temporaries(tmp_path, path.name)) == 1
    assert names(tmp_path) == []


def test_the_next_write_removes_what_a_killed_one_left(tmp_path):
    (tmp_path / ".a.csv.00000000.fewlabels").touch()
    write_file(tmp_path / "a.csv", b"x")
    assert names(tmp_path) == ["a.csv"]


def test_a_file_that_is_being_written_is_not_taken_for_abandoned(tmp_path):
    path = tmp_path / "a.csv"

    def write_another_meanwhile(file):
        file.write(b"first")
        assert remove_temporaries(tmp_path) == []
        write_file(path, b"second")

    write_file(path, write_another_meanwhile)
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["a.csv"]


def test_a_copy_keeps_its_times_and_is_there_whole_or_not_at_all(tmp_path):
    source, target = tmp_path / "a.jpg", tmp_path / "b.jpg"
    source.write_bytes(b"picture")
    os.utime(source, (1e9, 1e9))
    copy_file(source, target)
    assert (target.read_bytes(), target.stat().st_mtime) == (b"picture", 1e9)
    with pytest.raises(OSError):
        copy_file(tmp_path, tmp_path / "c.jpg")  # a folder cannot be read
    assert names(tmp_path) == ["a.jpg", "b.jpg"]


def test_a_checked_file_that_is_damaged_counts_as_missing(tmp_path):
    path = tmp_path / "picture"
    write_checked(path, b"pixels")
    assert read_checked(path) == b"pixels"
    data = path.read_bytes()
    for damaged in (data[:-1], data[:10], b"", data[:-1] + b"S", b"\0" + data[1:]):
        path.write_bytes(damaged)
        assert read_checked(path) is None
    path.unlink()
    assert read_checked(path) is None


def test_a_suffix_is_checked_under_the_name_given():
    check_suffix("report", Path("r.HTML"), [".html"])
    with pytest.raises(InputError, match=r"^--report must end in \.html or \.htm, got 'r\.pdf'\.$"):
        check_suffix("--report", Path("x/r.pdf"), [".html", ".htm"])


def test_an_output_is_not_an_input_nor_another_output(tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    check_apart({"labels": a, "truth": None}, {"output": b, "report": None})
    with pytest.raises(
        InputError, match=r"output must not be .*link\.csv, which is labels already"
    ):
        check_apart({"labels": a}, {"output": tmp_path / "link.csv"})
    with pytest.raises(InputError, match=r"report must not be .*, which is output already"):
        check_apart({}, {"output": b, "report": tmp_path / "x" / ".." / "b.csv"})
    os.link(a, b)
    with pytest.raises(InputError, match="output must not be"):
        check_apart({"labels": a}, {"output": b})


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    (tmp_path / "file").touch()
    require_file(tmp_path / "file", holds="labels")
    with pytest.raises(FileFormatError, match=r"nowhere does not exist\. Check the path for typos"):
        require_file(tmp_path / "nowhere", holds="labels")
    with pytest.raises(FileFormatError, match="is a folder; it must be a file that holds labels"):
        require_file(tmp_path, holds="labels")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (InputError("rows must be 3."), "file: rows must be 3."),
        (FileFormatError("as it is"), "as it is"),
        (
            ValueError("bad byte.\nat line 3"),
            "file cannot be read (ValueError: bad byte). "
            "The file must hold labels. Write it or copy it again.",
        ),
        (RecursionError(), "file cannot be read (RecursionError: )"),
    ],
)
def test_every_error_of_a_reader_names_the_file(tmp_path, raised, message):
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileFormatError) as caught,
        reading(tmp_path / "file", holds="labels"),
    ):
        raise raised
    assert message in str(caught.value)


def test_an_interrupt_passes_a_reader(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KeyboardInterrupt), reading(tmp_path / "file", holds="labels"):
        raise KeyboardInterrupt


def test_an_error_without_a_number_is_worded_by_its_text():
    error = unwritable(Path("a"), RuntimeError("zip failed"), way_out="Free some space.")
    assert str(error) == "a cannot be written (zip failed). Free some space."
