"""Tables of texts: from a CSV file to labels, a page, a model; and what is wrong with them."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

from fewlabels import export_labels, label_folder
from fewlabels.backbones.text import TEXT_ENCODERS, TextEncoder
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features.store import FeatureStore
from fewlabels.features.texts import encode_texts
from fewlabels.labeling.check import check_project
from fewlabels.labeling.collection import EXCERPT, Extraction
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.predict import predict_images
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session

WORDS = {
    "card": "bank card declined lost stolen swallowed machine pin blocked",
    "garden": "tomato seeds soil water roses prune hedge compost lawn spring",
    "train": "platform ticket delay station railway departure seat conductor luggage late",
}
TEXT = Extraction("tfidf")


def write_texts(path, *, per_class=14, n_labels=3, seed=0):
    """Sentences of the words of three subjects; true labels as a list."""
    rng = np.random.default_rng(seed)
    rows, true = [], []
    for label, words in WORDS.items():
        for i in range(per_class):
            text = " ".join(rng.choice(words.split(), 6))
            rows.append(
                {"id": f"{label}-{i}", "body": text, "label": label if i < n_labels else ""}
            )
            true.append(label)
    pd.DataFrame(rows).to_csv(path, index=False)
    return true


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    write_texts(path)
    return path


def test_texts_get_the_labels_of_their_subject(texts):
    outcome = label_folder(texts, columns={"text": "body"}, backbone="tfidf")
    found = [row.label for row in outcome.rows]
    assert np.mean([row.path.startswith(row.label) for row in outcome.rows]) > 0.9, found
    assert "42 texts, 3 classes" in outcome.describe()
    assert "Texts per class" in outcome.describe()


def test_no_message_calls_texts_images(texts, tmp_path):
    truth = tmp_path / "truth.csv"
    rows = [f"{label}-{i},{label}" for label in WORDS for i in range(14)]
    truth.write_text("\n".join(["id,label", *rows]))
    options = {"columns": {"text": "body"}, "backbone": "tfidf"}
    outcome = label_folder(texts, truth=truth, abstain=1.0, report=tmp_path / "r.html", **options)
    unscored = outcome.unscored(outcome.inputs.truth).describe(outcome.inputs.collection.noun)
    assert "texts not scored" in unscored
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    report = re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<[^>]*>", " ", text)
    assert "42 texts" in re.sub(r"\s+", " ", report)
    done = export_labels(texts, to="csv", output=tmp_path / "o", split=(0.5, 0.5))
    said = [outcome.describe(), unscored, report, done.describe(), *done.remarks, *outcome.remarks]
    assert not [each for each in said if re.search(r"\b(image|photo|picture of)", each)]
    for only, words in (("", "fill the column label in a few rows"), ("card", "a few texts of")):
        frame = pd.read_csv(texts)
        frame["label"] = frame["label"].where(frame["label"] == only)
        frame.to_csv(tmp_path / "few.csv", index=False)
        with pytest.raises(InputError, match=words):
            label_folder(tmp_path / "few.csv", **options)
    with pytest.raises(InputError, match="burst=3 needs photographs"):
        label_folder(texts, burst=3, **options)


def test_a_column_with_a_usual_name_needs_no_option(texts, tmp_path):
    frame = pd.read_csv(texts, keep_default_na=False)
    named = label_folder(frame, columns={"text": "body"}, backbone="tfidf")
    for other in ("text", "Sentence"):
        usual = label_folder(frame.rename(columns={"body": other}), backbone="tfidf")
        assert [row.label for row in usual.rows] == [row.label for row in named.rows]
    path = tmp_path / "texts.parquet"
    frame.to_parquet(path)
    of_file = label_folder(path, columns={"text": "body"}, backbone="tfidf")
    assert [row.label for row in of_file.rows] == [row.label for row in named.rows]


def test_vectors_of_a_table_win_over_its_texts_unless_an_encoder_is_named(tmp_path):
    path = tmp_path / "t.csv"
    true = write_texts(path)
    number = {label: i for i, label in enumerate(WORDS)}
    frame = pd.read_csv(path, keep_default_na=False)
    wrong = (np.arange(len(true)) % 3).tolist()  # vectors that contradict the texts
    frame["embedding"] = [np.eye(3)[each].tolist() for each in wrong]
    by_vectors = read_inputs(frame, columns={"text": "body"})
    assert by_vectors.collection.features.argmax(axis=1).tolist() == wrong
    assert by_vectors.collection.texts == tuple(frame["body"])
    by_texts = read_inputs(frame, columns={"text": "body"}, extraction=TEXT)
    assert by_texts.backbone == "tfidf"
    assert by_texts.collection.features.shape != by_vectors.collection.features.shape
    # columns q1 and q2 are no vectors where a text is named
    numbered = frame.drop(columns="embedding").assign(q1=1.0, q2=[number[each] for each in true])
    assert read_inputs(numbered, columns={"text": "body"}, extraction=TEXT).backbone == "tfidf"
    assert read_inputs(numbered.drop(columns="body")).collection.features.shape == (42, 2)


def test_empty_texts_are_left_out_and_named(texts):
    frame = pd.read_csv(texts, keep_default_na=False)
    frame.loc[[5, 9], "body"] = ["  ", ""]
    inputs = read_inputs(frame, columns={"text": "body"}, extraction=TEXT)
    assert "2 rows without a text left out: card-5, card-9." in inputs.remarks
    assert len(inputs.collection) == 40
    assert "card-5" not in inputs.collection.names
    frame["body"] = ""
    with pytest.raises(InputError, match="'body' must hold texts, got only empty cells"):
        read_inputs(frame, columns={"text": "body"}, extraction=TEXT)


def test_bad_tables_are_refused_in_words(texts, tmp_path):
    with pytest.raises(FileFormatError, match="'text' must be one of id, body, label, got 'bdoy'"):
        read_inputs(texts, columns={"text": "bdoy"})
    path = tmp_path / "words.csv"
    pd.read_csv(texts).rename(columns={"body": "words"}).to_csv(path, index=False)
    with pytest.raises(FileFormatError, match=r"column of texts, got id, words, label.*'text'"):
        read_inputs(path)
    path.write_text("id,body\na,one text\na,another\n")
    with pytest.raises(FileFormatError, match="'id' must name each row once, got 'a' more"):
        read_inputs(path, columns={"text": "body"})
    path.write_bytes("id,body\na,früh\n".encode("latin-1"))
    with pytest.raises(FileFormatError, match=r"line 2: the file must be text in UTF-8"):
        read_inputs(path, columns={"text": "body"})
    path.write_bytes("id,body\na,früh\n".encode("utf-16"))
    assert read_inputs(path, extraction=TEXT).collection.texts == ("früh",)
    with pytest.raises(InputError, match=r"backbone of texts must be one of .*minilm.*'resnet18'"):
        read_inputs(texts, columns={"text": "body"}, extraction=Extraction("resnet18"))
    with pytest.raises(InputError, match="backbone of texts must be one of"):
        label_folder(texts, columns={"text": "body"}, backbone="efficientnet-lite0")
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="first line of column names, got none"):
        read_inputs(path)


def test_a_huge_text_is_read_as_far_as_stated(texts):
    rows = list(csv.reader(texts.read_text().splitlines()))
    rows[4][1] = " ".join(["compost"] * 200_000)  # far beyond the usual limit of a cell
    with texts.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    inputs = read_inputs(texts, columns={"text": "body"}, extraction=TEXT)
    assert "1 text longer than 100,000 characters: the rest is not read." in inputs.remarks
    assert len(inputs.collection.texts[3]) == len(rows[4][1])  # kept whole
    assert csv.field_size_limit() < 1_000_000  # the limit of other readers is untouched


def test_labels_come_from_a_file_by_id(texts, tmp_path):
    frame = pd.read_csv(texts, keep_default_na=False)
    given = frame[frame["label"] != ""][["id", "label"]]
    given.to_csv(tmp_path / "few.csv", index=False)
    without = tmp_path / "t.csv"
    frame.drop(columns="label").to_csv(without, index=False)
    one = label_folder(without, tmp_path / "few.csv", columns={"text": "body"}, backbone="tfidf")
    other = label_folder(texts, columns={"text": "body"}, backbone="tfidf")
    assert [row.label for row in one.rows] == [row.label for row in other.rows]


def test_no_model_of_an_encoder_that_cannot_read_later_texts(texts, tmp_path):
    model = tmp_path / "m.safetensors"
    with pytest.raises(InputError, match="model needs a text encoder that can read later texts"):
        label_folder(texts, columns={"text": "body"}, backbone="tfidf", model=model)
    assert not model.exists()


def test_a_project_keeps_texts_and_opens_again(texts):
    columns = {"text": "body"}
    session = open_session(texts, extraction=TEXT, columns=columns)
    shown, folder = session.collection.texts, session.project.folder
    before = [row.label for row in session.rows()]
    session.close()
    assert shown[0] == pd.read_csv(texts)["body"][0]
    again = open_session(texts, columns=columns)  # the same file: the same project
    assert (again.collection.texts, [row.label for row in again.rows()]) == (shown, before)
    again.close()
    texts.unlink()  # the project needs the file no more
    with Project.open(folder) as project:
        assert project.load().texts == shown
        assert project.backbone == "tfidf"
    kept = (folder / "shown.json").read_bytes()
    assert [finding.what for finding in check_project(folder) if finding.right].count("shown.json")
    (folder / "shown.json").write_bytes(kept.replace(shown[0].encode(), shown[0].upper().encode()))
    with (
        Project.open(folder) as project,
        pytest.raises(FileFormatError, match=r"shown\.json is damaged: its digest is another"),
    ):
        project.load()
    assert not all(finding.right for finding in check_project(folder))


def test_a_file_with_other_texts_is_not_the_project_s(texts):
    open_session(texts, extraction=TEXT, columns={"text": "body"}).close()
    write_texts(texts, seed=1)
    with pytest.raises(InputError, match="photos must be left out for"):
        open_session(texts, columns={"text": "body"})


def test_pictures_and_sounds_of_a_table_are_shown_from_its_folder_only(photos, tmp_path):
    names = [f"{name}-{i}.png" for name in ("apple", "leek") for i in range(4)]
    (tmp_path / "outside.png").write_bytes((photos / names[0]).read_bytes())
    frame = pd.DataFrame(
        {
            "id": range(8),
            "photo": [*names[:6], "gone.png", "../outside.png"],
            "sound": [f"{i}.wav" for i in range(8)],
            "embedding": [json.dumps(each) for each in np.eye(8).tolist()],
        }
    )
    (photos / "0.wav").write_bytes(b"RIFF")
    path = photos / "table.csv"
    frame.to_csv(path, index=False)
    inputs = read_inputs(path, columns={"image": "photo", "audio": "sound"})
    items = inputs.collection
    assert items.path(0) == photos / names[0]
    assert (items.path(6), items.path(7)) == (None, None)
    assert (items.audio_path(0), items.audio_path(1)) == (photos / "0.wav", None)
    assert any("2 pictures not found" in each and "gone.png" in each for each in inputs.remarks)
    assert any("7 sound files not found" in each for each in inputs.remarks)
    with inputs.begin_project(tmp_path / "p") as project:
        assert project.load().path(1) == photos / names[1]
    # a column of names that are pictures beside the table is shown without being asked
    frame.rename(columns={"photo": "path"}).to_csv(path, index=False)
    assert read_inputs(path).collection.path(0) == photos / names[0]
    frame.drop(columns=["photo", "sound"]).to_csv(path, index=False)
    plain = read_inputs(path).collection
    assert (plain.shown, plain.root) == (None, None)
    with pytest.raises(FileFormatError, match="'image' must be one of"):
        read_inputs(path, columns={"image": "picture"})


def test_texts_and_their_rows_are_kept_in_the_store(tmp_path):
    """A second run computes nothing, and the same text twice is computed once."""
    asked = []

    def encode(batch):
        asked.extend(batch)
        return np.array([[len(text), text.count("a")] for text in batch], np.float32)

    encoder = TextEncoder("length", 2, "0" * 32, encode, "all")
    store = FeatureStore(tmp_path / "store")
    given = ["banana", "plum", "banana", "a" * 200_000]
    rows = encode_texts(given, [encoder], store=store)
    assert rows.tolist() == [[6, 3], [4, 0], [6, 3], [100_000, 100_000]]
    assert sorted(map(len, asked)) == [4, 6, 100_000]
    again = encode_texts([*given, "kiwi"], [encoder], store=store)
    assert again[:4].tolist() == rows.tolist()
    assert again[4].tolist() == [4, 0]
    assert len(asked) == 4


def test_excerpts_are_one_short_line(texts):
    frame = pd.read_csv(texts, keep_default_na=False)
    frame.loc[0, "body"] = "first\nsecond " + "word " * 200
    items = read_inputs(frame, columns={"text": "body"}, extraction=TEXT).collection
    assert items.describe(0).startswith("first second word")
    assert len(items.describe(0)) == EXCERPT
    assert items.describe(0).endswith("…")
    assert items.describe(1) == frame["body"][1]


def test_the_report_shows_texts_as_text(texts, tmp_path):
    frame = pd.read_csv(texts, keep_default_na=False)
    frame.loc[5:, "body"] += " <script>alert(1)</script>"
    label_folder(
        frame, columns={"text": "body"}, backbone="tfidf", report=tmp_path / "r.html", command="x"
    )
    written = (tmp_path / "r.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</span>" in written
    assert "<script>alert" not in written


def test_a_model_predicts_later_texts(texts, tmp_path):
    if not TEXT_ENCODERS["wordllama"].is_installed():
        pytest.skip("a text encoder is not installed")
    model, later = tmp_path / "m.safetensors", tmp_path / "later.csv"
    columns = {"text": "body"}
    outcome = label_folder(texts, columns=columns, backbone="wordllama", model=model)
    assert outcome.inputs.backbone == "wordllama"
    true = write_texts(later, seed=7)
    rows, _ = predict_images(model, [later])
    assert np.mean([row.label == label for row, label in zip(rows, true, strict=True)]) > 0.8
    pd.read_csv(later).rename(columns={"body": "words"}).to_csv(later, index=False)
    with pytest.raises(FileFormatError, match="'text' must be one of id, words, label, got 'body'"):
        predict_images(model, [later])
    assert predict_images(model, [later], columns={"text": "words"})[0] == rows
    with pytest.raises(InputError, match="can only predict one table of texts"):
        predict_images(model, [tmp_path])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_written_table_shows_the_texts_and_can_be_given_back(texts, tmp_path, suffix):
    path = tmp_path / f"labels{suffix}"
    outcome = label_folder(texts, columns={"text": "body"}, backbone="tfidf", output=path)
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    table = read(path)
    assert list(table["text"]) == list(outcome.inputs.collection.texts)
    assert list(table.columns)[-1] == "text"
    if suffix == ".csv":
        again = label_folder(texts, labels=path, columns={"text": "body"}, backbone="tfidf")
        assert [row.label for row in again.rows] == [row.label for row in outcome.rows]
