"""The report: one file, everything in it, nothing that could run."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix

from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs
from fewlabels.labeling.report import build_report, color, write_report

VOID = {"meta", "img", "br", "link", "input"}


class Checker(HTMLParser):
    """Notes tags that are left open or closed out of order."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, _):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture
def outcome(photos, few, encoder):
    (photos / "apple-5.png").rename(photos / "<script>alert(1)<!--.png")
    return label_inputs(
        read_inputs(
            photos, labels=few, extraction=Extraction(backbone=encoder, device="cpu", n_workers=0)
        )
    )


def test_it_is_whole_and_harmless(outcome, tmp_path):
    truth = {
        name: "apple" if "script" in name else name.split("-")[0]
        for name in outcome.inputs.collection.names
    }
    made = {"command": "fewlabels label <b>", "table": tmp_path / "my labels.csv"}
    write_report(tmp_path / "out" / "report.html", outcome, truth, **made)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert not checker.wrong
    assert not checker.open
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "{{" not in page
    assert re.findall(r'(?:src|href)="(?!data:)([^"]*)', page) == ["../my%20labels.csv"]
    assert "<code>fewlabels label &lt;b&gt;</code>" in page
    assert outcome.inputs.collection.fingerprint in page
    (mosaic,) = re.findall(r"url\(data:image/webp;base64,([^)]+)\)", page)
    assert Image.open(io.BytesIO(base64.b64decode(mosaic))).size == (30 * 72, 72)
    assert page.count("--x:") == len(outcome.rows)  # a point of the map for each image
    pictures = re.findall(r"\"data:image/webp;base64,([^\"]+)", page)
    assert len(pictures) == 2 * 18  # all that the model labelled, also as the ones to label first
    assert Image.open(io.BytesIO(base64.b64decode(pictures[0]))).size == (96, 96)


def test_without_truth_there_is_no_confusion(outcome):
    assert "Confusions" not in build_report(outcome)


def test_no_picture_from_outside_the_folder_of_a_table_is_shown(photos, tmp_path):
    """Such pictures were embedded in report.html."""
    Image.new("RGB", (64, 64), (250, 0, 250)).save(tmp_path / "private.png")
    shown = ["../private.png", str(tmp_path / "private.png"), "gone.png", "plum-0.png"]
    cells = [f"r{i},{'' if i % 2 else 'ab'[i // 2]},{i // 2},{i % 2}" for i in range(4)]
    lines = [f"{cell},{path}\n" for cell, path in zip(cells, shown, strict=True)]
    (photos / "t.csv").write_text("id,label,e0,e1,pic\n" + "".join(lines))
    outcome = label_inputs(read_inputs(photos / "t.csv", columns={"image": "pic"}))
    collection = outcome.inputs.collection
    assert [collection.picture(row) is None for row in range(4)] == [True, True, True, False]
    assert collection.paths == [None, None, None, photos / "plum-0.png"]
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(each)))
        for each in re.findall(r"data:image/webp;base64,([^\")]+)", build_report(outcome))
    ]
    assert pictures
    for picture in pictures:
        red, green, _ = np.asarray(picture.convert("RGB"), dtype=int).reshape(-1, 3).T
        assert (red - green).max() < 150


def test_labelled_images_of_a_second_folder_are_shown(photos, tmp_path, encoder):
    (tmp_path / "labelled").mkdir()
    for name in ("apple", "leek"):
        (tmp_path / "labelled" / name).mkdir()
        (photos / f"{name}-0.png").rename(tmp_path / "labelled" / name / "0.png")
    extraction = Extraction(backbone=encoder, device="cpu", n_workers=0)
    inputs = read_inputs(photos, labels=tmp_path / "labelled", extraction=extraction)
    rows = range(inputs.n_listed, len(inputs.collection))
    assert len(rows) == 2
    assert all(inputs.collection.picture(row) is not None for row in rows)


def test_features_without_pictures(tmp_path, blobs, hide, encoder):
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=hide(blobs.labels, 2),
        class_names=np.array(blobs.class_names),
    )
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"))
    assert "<span>row 5</span>" in build_report(outcome) or "row 5" in build_report(outcome)


@pytest.fixture
def label_blobs(tmp_path, blobs, hide):
    """The outcome of four labels each of some of the classes."""

    def label(*, n_named, **options):
        labels = np.where(blobs.labels < n_named, hide(blobs.labels, 4), -1)
        np.savez(
            tmp_path / "f.npz",
            features=blobs.features,
            labels=labels,
            class_names=np.array(blobs.class_names),
        )
        return label_inputs(
            read_inputs(tmp_path / "f.npz"),
            **options,
        )

    return label


def outlier_section(outcome):
    """The report's section on images of no class, and their rows, labels and probabilities."""
    page = build_report(outcome)
    if "Perhaps none of these" not in page:
        return None
    checker = Checker()
    checker.feed(page)
    assert not checker.wrong
    part = page.split("<h2>Perhaps none of these</h2>")[1].split("</section>")[0]
    return part, re.findall(
        r'<figure title="row (\d+) · ([^·]+) · none of these: ([\d.]+) %">', part
    )


def test_images_of_no_class_are_shown_the_most_probable_first(label_blobs, monkeypatch):
    outcome = label_blobs(n_named=3, none_of_these=True)
    part, shown = outlier_section(outcome)
    assert len(shown) == outcome.summary()["none_of_these"] > 20
    assert "are shown." not in part
    places = [int(place) for place, _, _ in shown]
    assert [label for _, label, _ in shown] == [outcome.rows[place].label for place in places]
    assert [float(percent) for _, _, percent in shown] == pytest.approx(
        [100 * outcome.none_of_these[place] for place in places]
    )
    exact = [outcome.answer.none_of_these[place] for place in places]
    assert exact == sorted(exact, reverse=True)
    monkeypatch.setattr("fewlabels.labeling.report.MOST_OUTLIERS", 5)
    part, few = outlier_section(outcome)
    assert few == shown[:5]
    assert f"5 of {len(shown)} are shown." in part


def test_who_did_not_ask_for_images_of_no_class_reads_nothing_of_them(label_blobs):
    outcome = label_blobs(n_named=3, none_of_these=False)
    assert outlier_section(outcome) is None
    assert "named classes" not in build_report(outcome) + outcome.describe()


def test_no_image_of_no_class_is_one_line(label_blobs):
    outcome = label_blobs(n_named=4, none_of_these=True)
    assert outlier_section(outcome) == (
        '<p class="note">No image looks like none of these classes.</p>',
        [],
    )
    assert "named classes" not in build_report(outcome) + outcome.describe()


def test_among_images_of_no_class_the_estimate_is_about_the_named(label_blobs):
    outcome = label_blobs(n_named=3, none_of_these=True)
    assert "Estimated accuracy among the named classes" in outcome.describe()
    assert re.search(
        r"estimated accuracy, \d+ % to \d+ %, among the named classes", build_report(outcome)
    )


def test_a_label_left_out_stays_so_among_images_of_no_class(label_blobs):
    _, shown = outlier_section(label_blobs(n_named=3, none_of_these=True, abstain=1.0))
    assert {label for _, label, _ in shown} == {"left out"}


def test_the_confusion_is_that_of_scikit_learn(tmp_path, make_blobs, hide, encoder):
    blobs = make_blobs(spread=3.0)
    labels = hide(blobs.labels, 2)
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=labels,
        class_names=np.array(blobs.class_names),
    )
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"))
    score = outcome.score({f"row {i}": f"c{label}" for i, label in enumerate(blobs.labels)})
    hidden = labels < 0
    np.testing.assert_array_equal(
        score.confusion, confusion_matrix(blobs.labels[hidden], outcome.answer.labels[hidden])
    )
    assert score.n_right == np.trace(score.confusion)


def test_labels_that_were_left_out_are_not_scored(tmp_path, make_blobs, hide, encoder):
    blobs = make_blobs(spread=3.0)
    labels = hide(blobs.labels, 2)
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=labels,
        class_names=np.array(blobs.class_names),
    )
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"), abstain=0.6)
    true = ["other" if label == 3 else f"c{label}" for label in blobs.labels]
    truth = {f"row {i}": label for i, label in enumerate(true)}
    named = [i for i, label in enumerate(true) if labels[i] < 0 and label != "other"]
    kept = [i for i in named if outcome.rows[i].label]
    score, unscored = outcome.score(truth), outcome.unscored(truth)
    assert 0 < len(kept) < len(named)
    assert score.n == score.confusion.sum() == len(kept)
    assert score.n_right == sum(outcome.rows[i].label == true[i] for i in kept)
    assert score.n_right_rivals["nearest class mean"] == sum(
        outcome.class_names[outcome.labels_by("ncm")[i]] == true[i] for i in kept
    )
    assert unscored == (len(named) - len(kept), {"other": 28})
    assert "28 images not scored, of classes without a label" in build_report(outcome, truth)


def test_neighbouring_classes_have_different_colours():
    assert len({color(number) for number in range(40)}) == 40


def test_what_is_confused_and_how_reliable_confidences_are(tmp_path, make_blobs, hide, encoder):
    blobs = make_blobs(spread=3.0)
    labels = hide(blobs.labels, 2)
    class_names = np.array(blobs.class_names)
    np.savez(tmp_path / "f.npz", features=blobs.features, labels=labels, class_names=class_names)
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"))
    truth = {f"row {i}": f"c{label}" for i, label in enumerate(blobs.labels)}
    page = build_report(outcome, truth)
    found, hidden = outcome.answer.labels, labels < 0
    matrix = confusion_matrix(blobs.labels[hidden], found[hidden])
    both = np.triu(matrix + matrix.T, 1)
    first, second = np.unravel_index(both.argmax(), both.shape)
    assert f"{both.max()} errors of {both.sum()}: c{first} or c{second}" in page
    # The worst class comes first, and its bar is the part found right.
    recall = matrix.diagonal() / matrix.sum(axis=1)
    classes = page[page.index("<h2>Classes</h2>") : page.index("<h2>Confidence and truth</h2>")]
    rows = re.findall(r"</i>(c\d)</th>.*?value=\"([\d.]+)\"", classes)
    assert [float(part) for _, part in rows] == pytest.approx(sorted(recall), abs=5e-4)
    assert rows[0][0] == f"c{recall.argmin()}"
    # Bins of confidence hold every scored image once.
    reliability = page[page.index("<h2>Confidence and truth</h2>") : page.index("Confused most")]
    counts = re.findall(r'to \d+ %</th><td class="number">(\d+)</td>', reliability)
    assert sum(map(int, counts)) == hidden.sum()
    assert reliability.count("<circle") == len(counts)
    # Without true labels, the classes between which doubtful images are, and no matrix.
    alone = build_report(outcome)
    assert re.search(r"\d+ doubtful labels? of \d+: c\d or c\d", alone)
    assert "<h2>Confusions</h2>" not in alone
    assert "Confidence and truth" not in alone  # eight labels are too few for it


def test_own_labels_show_how_reliable_confidences_are(tmp_path, make_blobs, hide):
    blobs = make_blobs(spread=3.0)
    labels = hide(blobs.labels, 10)
    class_names = np.array(blobs.class_names)
    np.savez(tmp_path / "f.npz", features=blobs.features, labels=labels, class_names=class_names)
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"))
    page = build_report(outcome)
    reliability = page[page.index("<h2>Confidence and truth</h2>") :].split("</section>")[0]
    assert "of your own labels, each hidden once" in reliability
    counts = re.findall(r'to \d+ %</th><td class="number">(\d+)</td>', reliability)
    assert sum(map(int, counts)) == 40
    assert all(name in page for name in outcome.suggest(24))
