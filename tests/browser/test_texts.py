"""A table of texts on the page: whole texts, never as HTML; pictures and sounds of a table."""

import json

import numpy as np
import pandas as pd
import pytest

from fewlabels.backbones.text import TEXT_ENCODERS
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import read_inputs

SCRIPT = "<img src=x onerror=\"globalThis.broken=true;document.title='broken'\">"
LONG = f"{SCRIPT} begins\n" + "and goes on " * 60 + "to its last word."


@pytest.fixture
def texts(tmp_path):
    """Thirty texts of two subjects, one of them long, with a sound file each."""
    rng = np.random.default_rng(0)
    subjects = {"garden": "seeds soil roses hedge lawn", "train": "ticket delay station seat late"}
    rows = [
        {"id": f"{label} {i}", "body": " ".join(rng.choice(words.split(), 5)), "label": label}
        for label, words in subjects.items()
        for i in range(15)
    ]
    frame = pd.DataFrame(rows)
    frame.loc[frame.index % 15 > 2, "label"] = ""
    frame.loc[3, "body"] = LONG
    frame["sound"] = ["a.wav", "../b.wav", "../texts.csv", *[""] * 27]
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "a.wav").write_bytes(b"RIFF----")
    (tmp_path / "b.wav").write_bytes(b"RIFF----")
    frame.to_csv(folder / "texts.csv", index=False)
    inputs = read_inputs(
        folder / "texts.csv",
        columns={"text": "body", "audio": "sound"},
        extraction=Extraction("tfidf"),
    )
    inputs.begin_project(tmp_path / "p").close()
    return tmp_path / "p"


def test_texts_are_shown_as_written_and_can_be_searched(texts, serve, visit):
    page = visit(serve(texts))
    page.wait_for_selector(".tile .words.text")
    assert " texts" in page.locator("#pinned-note").text_content()
    page.fill("#filter", "goes on")  # words of the text, not of its name
    page.wait_for_function("() => document.querySelectorAll('.tile').length === 1")
    tile = page.locator(".tile")
    assert tile.locator("img").count() == 0
    assert tile.locator(".words").text_content().startswith(f"{SCRIPT} begins and goes on")
    page.wait_for_function(
        "words => document.querySelector('#item-text').textContent === words", arg=LONG
    )
    assert page.locator("#picture-button").is_hidden()
    assert page.evaluate("globalThis.broken") is None
    assert page.locator("#item-text img").count() == 0


def test_sounds_come_from_the_folder_of_the_table_alone(texts, serve, visit):
    page = visit(serve(texts))
    page.wait_for_selector(".tile")
    assert page.locator("#sound").get_attribute("src").startswith("/audio/")
    statuses = [page.request.get(f"{page.url}audio/{item}").status for item in (0, 1, 2, 3, 999)]
    assert statuses == [200, 404, 404, 404, 404]
    assert page.request.get(f"{page.url}audio/0").headers["content-type"] == "audio/wav"
    assert page.request.get(f"{page.url}api/text/999").status == 404
    page.complaints.clear()  # the browser notes sounds that are not there


def test_a_search_by_meaning(tmp_path, serve, visit):
    if not TEXT_ENCODERS["wordllama"].is_installed():
        pytest.skip("a text encoder is not installed")
    path = tmp_path / "t.csv"
    texts = ["the flight was delayed", "my dog barks", "a kitten sleeps", "the train is late"]
    pd.DataFrame({"text": texts}).to_csv(path, index=False)
    inputs = read_inputs(path, extraction=Extraction("wordllama"))
    inputs.begin_project(tmp_path / "p").close()
    page = visit(serve(tmp_path / "p"))
    page.fill("#filter", "pets & animals")
    page.press("#filter", "Enter")
    page.wait_for_function(
        "() => document.querySelector('#pinned-title').textContent === 'Search: pets & animals'"
    )
    tiles = page.locator(".tile")
    assert tiles.count() == 4  # all of them: the words are no filter any more
    shown = [page.locator(f"[aria-posinset='{place}'] .words").text_content() for place in (1, 2)]
    assert set(shown) == {"my dog barks", "a kitten sleeps"}
    page.keyboard.press("Escape")
    page.wait_for_function(
        "() => !document.querySelector('#pinned-title').textContent.startsWith('Search')"
    )


def test_without_words_there_is_no_search(texts, serve, visit):
    page = visit(serve(texts))
    assert page.locator("#filter").get_attribute("placeholder") == "Filter  /"
    answer = page.request.get(f"{page.url}api/search?words=pets")
    assert answer.status == 422
    assert "got tfidf" in answer.json()["error"]
    assert page.request.get(f"{page.url}api/search?words=").status == 422
    assert page.request.get(f"{page.url}api/search?words={'a' * 501}").status == 422


def test_pictures_of_a_table_are_shown(tmp_path, project, serve, visit):
    photos = tmp_path / "photos"
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))[:12]
    frame = pd.DataFrame(
        {
            "id": [f"item {i}" for i in range(12)],
            "photo": names,
            "label": ["a", "b", *[""] * 10],
            "embedding": [json.dumps(row) for row in np.eye(12).tolist()],
        }
    )
    frame.to_csv(photos / "table.csv", index=False)
    inputs = read_inputs(photos / "table.csv", columns={"image": "photo"})
    inputs.begin_project(tmp_path / "p").close()
    page = visit(serve(tmp_path / "p"))
    page.wait_for_selector(".tile img.there")
    assert page.locator(".tile").first.get_attribute("aria-label").startswith("item ")
    answer = page.request.get(f"{page.url}api/exports").json()
    assert "csv" in {each["name"] for each in answer}
    assert "coco" not in {each["name"] for each in answer}  # its pictures are not the project's
