import unicodedata

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from fewlabels.errors import FileFormatError, InputError
from fewlabels.labeling.labels_file import (
    check_enough,
    check_label,
    read_folder_names,
    read_label_rows,
    read_labels,
    read_truth,
    remark_folders,
)
from fewlabels.labeling.outputs import LabelRow, to_csv

NAMES = ("a/1.jpg", "a/2.jpg", "b/3.jpg")


def write(tmp_path, text, **how):
    path = tmp_path / "few.csv"
    path.write_text(text, encoding=how.get("encoding", "utf-8"))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na/1.jpg,leek\nb/3.jpg,apple\n",
        "file_name,label\na/1.jpg,leek\nb/3.jpg,apple\na/2.jpg,\n",
        "\ufefflabel;path\nleek;a/1.jpg\napple;b/3.jpg\n",
        "Path\tLabel\na\\1.jpg\tleek\n./b/3.jpg\tapple\n\n",
        "id,file,class\n7,1.jpg,leek\n8,3.jpg, apple \n",
        'path,label\n"a/1.jpg",leek\r\nb/3.jpg,"apple"\r\n',
        '"path","label","a, b"\n"a/1.jpg","leek","x, y"\n"b/3.jpg","apple"\n',
    ],
)
def test_the_forms_people_write(tmp_path, text):
    assert read_labels(write(tmp_path, text), NAMES).labels == {
        "a/1.jpg": "leek",
        "b/3.jpg": "apple",
    }


def test_absolute_paths_inside_the_folder(tmp_path):
    text = f"path,label\n{tmp_path}/photos/a/1.jpg,leek\n"
    assert read_labels(write(tmp_path, text), NAMES, root=tmp_path / "photos").labels == {
        "a/1.jpg": "leek"
    }


def test_paths_from_the_file_or_from_here(tmp_path, monkeypatch):
    root = tmp_path / "photos"
    text = "path,label\nphotos/a/1.jpg,leek\n../" + tmp_path.name + "/photos/b/3.jpg,apple\n"
    assert read_labels(write(tmp_path, text.replace("../", "./../")), NAMES, root=root).labels == {
        "a/1.jpg": "leek",
        "b/3.jpg": "apple",
    }
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "elsewhere").mkdir()
    text = f"path,label\n{tmp_path.name}/photos/a/1.jpg,leek\n"
    assert read_labels(write(tmp_path / "elsewhere", text), NAMES, root=root).labels == {
        "a/1.jpg": "leek"
    }
    with pytest.raises(InputError, match=r"line 2: other/a/1\.jpg"):
        read_labels(write(tmp_path, "path,label\nother/a/1.jpg,leek\n"), NAMES, root=root)


@pytest.mark.parametrize("letters", ["a, b", 'say "x"', "a\u2028b", "=1+1", "früh 早餐"])
def test_labels_as_fewlabels_wrote_them_come_back(tmp_path, letters):
    rows = [
        LabelRow("a/1.jpg", letters, 1.0, "", 1.0, "person"),
        LabelRow("b/3.jpg", "leek", 1.0, "", 1.0, "import"),
    ]
    assert read_labels(write(tmp_path, to_csv(rows)), NAMES).labels == {
        "a/1.jpg": letters,
        "b/3.jpg": "leek",
    }


def test_guesses_do_not_come_back_as_labels(tmp_path):
    rows = [
        LabelRow("a/1.jpg", "leek", 1.0, "", 1.0, "person"),
        LabelRow("b/3.jpg", "leek", 0.5, "", 0.1, "model"),
    ]
    found = read_labels(
        write(tmp_path, to_csv([*rows, LabelRow("a/2.jpg", "", 0.4, "leek", 0.1, "")])), NAMES
    )
    assert found.labels == {"a/1.jpg": "leek"}
    assert len(found.remarks) == 1
    assert "1 row of origin 'model' is a prediction" in found.remarks[0]
    with pytest.raises(InputError, match=r"no labels to learn from.*\. a prediction"):
        check_enough({}, 3, because=["a prediction"])


def test_what_excel_calls_unicode_text(tmp_path):
    assert read_labels(
        write(tmp_path, "path\tlabel\r\na/1.jpg\tGrün\r\n", encoding="utf-16"), NAMES
    ).labels == {"a/1.jpg": "Grün"}


@pytest.mark.parametrize("name", ["few.xlsx", "few.ods", "renamed.csv"])
def test_spreadsheets_are_refused_kindly(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(FileFormatError, match=r"spreadsheet.*CSV UTF-8"):
        read_labels(tmp_path / name, NAMES)


def test_a_quotation_mark_left_open_eats_no_lines(tmp_path):
    with pytest.raises(FileFormatError, match=r"line 3: .*quotation mark"):
        read_labels(
            write(tmp_path, 'path,label\na/1.jpg,leek\na/2.jpg,"leek\nb/3.jpg,apple\n'), NAMES
        )
    with pytest.raises(InputError, match="line 2: a label must be one line"):
        read_labels(write(tmp_path, 'path,label\na/1.jpg,"le\nek"\n'), NAMES)


def test_other_encodings_are_refused_with_the_line(tmp_path):
    with pytest.raises(FileFormatError, match="line 3: the file must be text in UTF-8"):
        read_labels(
            write(tmp_path, "path,label\na/1.jpg,leek\nb/3.jpg,Grün\n", encoding="latin-1"), NAMES
        )


def test_capital_letters_are_remarked_on():
    remarks = check_enough({"a": "Leek", "b": "leek", "c": "apple", "d": "x" * 190}, 9)
    assert "'Leek' and 'leek'" in remarks[0]
    assert all(len(remark) < 300 for remark in remarks)


def test_names_that_macs_decompose(tmp_path):
    composed, decomposed = (
        unicodedata.normalize("NFC", "müsli/ä.jpg"),
        unicodedata.normalize("NFD", "müsli/ä.jpg"),
    )
    assert read_labels(
        write(tmp_path, f"path,label\n{composed},Müsli 早餐\n"), [decomposed]
    ).labels == {decomposed: "Müsli 早餐"}


def test_every_problem_is_listed_with_its_line(tmp_path):
    text = "path,label\na/1.jpg,leek\nnowhere.jpg,leek\na/1.jpg,apple\nb/9.jpg,apple\n"
    with pytest.raises(InputError, match=r"lines 2 and 4: a/1\.jpg is 'leek' and 'apple'"):
        read_labels(write(tmp_path, text), NAMES)


def test_a_file_may_name_more_than_the_folder_holds(tmp_path):
    text = "path,label\na/1.jpg,leek\nnowhere.jpg,leek\nb/9.jpg,apple\n"
    found = read_labels(write(tmp_path, text), NAMES)
    assert found.labels == {"a/1.jpg": "leek"}
    assert "2 paths not found, left out: line 3: nowhere.jpg, line 4: b/9.jpg." in found.remarks[0]
    with pytest.raises(
        InputError, match=r"none of its 1 path is among the 3 items.*such as 'a/1.jpg'"
    ):
        read_labels(write(tmp_path, "path,label\nnowhere.jpg,leek\n"), NAMES)


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_prediction_corrected_in_a_spreadsheet_is_a_label(tmp_path, separator):
    rows = [
        LabelRow("a/1.jpg", "leek", 0.9, "plum", 0.8, "model", guess="leek"),
        LabelRow("a/2.jpg", "leek", 0.6, "plum", 0.2, "model", guess="leek"),
        LabelRow("b/3.jpg", "", 0.4, "plum", 0.1, "", guess="leek"),
    ]
    lines = to_csv(rows, [0.9, 0.9, 0.9]).splitlines()
    lines[2] = lines[2].replace("a/2.jpg,leek,", "a/2.jpg, =plum ,")
    lines[3] = lines[3].replace("b/3.jpg,,", "b/3.jpg,leek,")
    path = write(tmp_path, "\n".join(lines).replace(",", separator))
    found = read_labels(path, NAMES)
    assert found.labels == {"a/2.jpg": "=plum", "b/3.jpg": "leek"}
    assert "1 prediction corrected by hand. It counts as your label." in found.remarks[0]
    assert "1 row of origin 'model' is a prediction" in found.remarks[1]
    assert read_label_rows(path, NAMES).labels == {
        "a/1.jpg": ("leek", "model", 0.9, 0.9, "", ""),
        "a/2.jpg": ("=plum", "import", 1.0, 0.0, "", ""),
        "b/3.jpg": ("leek", "import", 0.4, 0.9, "", ""),
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_that_tells_excel_the_separator_is_passed_over(tmp_path, end):
    text = end.join(["sep=;", "path;label", "a/1.jpg;leek", "nowhere.jpg;leek", ""])
    found = read_labels(write(tmp_path, text), NAMES)
    assert found.labels == {"a/1.jpg": "leek"}
    assert "line 4: nowhere.jpg" in found.remarks[0]
    with pytest.raises(FileFormatError, match="must begin with a line"):
        read_labels(write(tmp_path, f"sep=;{end}"), NAMES)


def test_long_lists_are_cut(tmp_path):
    text = "path,label\n" + "".join(f"no{i}.jpg,leek\n" for i in range(30))
    with pytest.raises(InputError, match="and 22 more"):
        read_labels(write(tmp_path, text), NAMES)


def test_a_label_given_twice_alike_counts_once_and_is_remarked_on(tmp_path):
    found = read_labels(write(tmp_path, "path,label\na/1.jpg,leek\na/1.jpg,leek\n"), NAMES)
    assert found.labels == {"a/1.jpg": "leek"}
    assert "line 3" in found.remarks[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("a/1.jpg,leek\n", "names of its columns"),
        ("path\na/1.jpg\n", "names of"),
        (
            "filename,species\na/1.jpg,leek\n",
            "got 'filename,species'. Rename the column of labels to label.",
        ),
        ("place,label\na/1.jpg,leek\n", "Rename the column of paths to path."),
    ],
)
def test_files_that_are_no_labels(tmp_path, text, words):
    with pytest.raises(FileFormatError, match=words):
        read_labels(write(tmp_path, text), NAMES)


def test_other_encodings_are_refused_in_words(tmp_path):
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_labels(write(tmp_path, "path,label\na/1.jpg,Gemüse\n", encoding="latin-1"), NAMES)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileFormatError, match="not a file of labels"):
        read_labels(tmp_path / "no.csv", NAMES)


@pytest.mark.parametrize(
    ("name", "deepest", "path", "second"),
    [
        ("1.jpg", None, None, None),
        ("leek/1.jpg", "leek", "leek", None),
        ("Fruit/Apple/Golden/1.jpg", "Golden", "Fruit/Apple/Golden", "Apple"),
        ("train/cat/1.jpg", "cat", "cat", None),
        ("cat/Test/1.jpg", "cat", "cat", None),
        ("train/1.jpg", None, None, None),
        ("DCIM/100CANON/1.jpg", None, None, None),
        ("DCIM/Camera/1.jpg", None, None, None),
        ("camera/1.jpg", "camera", "camera", None),
        ("leek/DCIM/101_PANA/1.jpg", "leek", "leek", None),
        ("100APPLE/leek/1.jpg", "leek", "leek", None),
        ("100 apples/1.jpg", "100 apples", "100 apples", None),
        ("unlabelled/leek/1.jpg", None, None, None),
        ("leek/Unlabeled/1.jpg", None, None, None),
        ("none of these/1.jpg", None, None, None),
        ("doubtful/1.jpg", None, None, None),
    ],
)
def test_the_deepest_named_folder_is_the_class(name, deepest, path, second):
    for class_from, label in (("deepest", deepest), ("path", path), ("2", second)):
        assert read_folder_names([name], class_from).get(name) == label


@pytest.mark.parametrize("class_from", ["deepest", "path", "1"])
def test_a_folder_and_a_typed_label_of_the_same_letters_are_one_class(class_from):
    """A folder that a Mac wrote decomposed was another class than the same word typed."""
    folder = unicodedata.normalize("NFD", "käse")
    assert read_folder_names([f"{folder}/1.jpg"], class_from) == {
        f"{folder}/1.jpg": check_label("käse")
    }
    assert read_folder_names([" leek /1.jpg", " /2.jpg"], class_from) == {" leek /1.jpg": "leek"}
    with pytest.raises(InputError, match=r"a\nb/1.jpg: a label must be one line of plain text"):
        read_folder_names(["a\nb/1.jpg"], class_from)


def test_nested_folders_are_remarked_on_and_a_wrong_rule_is_refused():
    assert "Fruit/Apple is 'Apple'" in remark_folders(["leek/1.jpg", "Fruit/Apple/1.jpg"])[0]
    assert remark_folders(["leek/1.jpg", "train/leek/1.jpg"]) == []
    for wrong in ("first", "0", "-1", ""):
        with pytest.raises(InputError, match="class_from must be 'deepest'"):
            read_folder_names(["a/1.jpg"], wrong)


def test_labels_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="line 2: a label must have at most 200"):
        read_labels(write(tmp_path, f"path,label\na/1.jpg,{'x' * 201}\n"), NAMES)
    with pytest.raises(InputError, match="one line"):
        check_label("two\nlines")


@given_by(st.text(max_size=60))
def test_a_checked_label_is_its_own_check(text):
    try:
        label = check_label(text)
    except InputError:
        return
    assert check_label(label) == label


def test_enough_labels():
    with pytest.raises(InputError, match="no labels to learn from"):
        check_enough({}, 5)
    with pytest.raises(InputError, match="at least two classes, got only 'leek'"):
        check_enough({"a": "leek", "b": "leek"}, 5)
    remarks = check_enough({"a": "leek", "b": "leek", "c": "apple"}, 5)
    assert "Only one label each for 'apple'" in remarks[0]
    assert "nothing left" in check_enough({"a": "leek", "b": "apple"}, 2)[-1]


def test_truth_by_folders_or_file(tmp_path):
    assert read_truth("folders", ("a/1.jpg", "2.jpg"), root=None).labels == {"a/1.jpg": "a"}
    path = write(tmp_path, "path,label\nb/3.jpg,plum\n")
    assert read_truth(str(path), NAMES, root=None).labels == {"b/3.jpg": "plum"}
    assert read_truth(None, NAMES, root=None).labels == {}
