"""Classes with sub-classes on the page: a tree of classes, and the class above a doubtful one."""

import numpy as np
import pytest

from fewlabels.features import FeatureSet
from fewlabels.labeling.project import Project

CENTERS = {"animal/cat": [9, 1, 1], "animal/dog": [9, 1, 1], "plant": [1, 9, 1]}
N, N_LABELS = 20, 6
ABOVE = """async () => {
  const { page } = await import("/page/shared.js");
  const whole = await (await fetch("/api/state")).json();
  const shown = [...page.state.above].map(([item, { label, sure }]) => [item, label, sure]);
  const yours = page.state.marks.includes("1");
  return yours && page.state.searched && page.state.version === whole.version
    && [shown.sort(([a], [b]) => a - b), whole.above];
}"""


@pytest.fixture
def animals(tmp_path):
    """Cats and dogs that nobody can tell apart, and plants; six labels per class."""
    rng = np.random.default_rng(0)
    names = [f"{name.replace('/', '-')}-{i}" for name in CENTERS for i in range(N)]
    vectors = np.repeat([*CENTERS.values()], N, axis=0) + rng.normal(scale=0.6, size=(60, 3))
    features = FeatureSet.from_arrays(np.abs(vectors), [-1] * 60, [], names=names)
    given = {f"{each.replace('/', '-')}-{i}": each for each in CENTERS for i in range(N_LABELS)}
    with Project.create(tmp_path / "p", features, title="animals") as made:
        made.journal.decide(given, origin="import")
    return tmp_path / "p"


def test_the_list_is_a_tree_and_a_doubtful_dog_a_sure_animal(animals, serve, visit):
    page = visit(serve(animals, sub_classes="/"))
    page.wait_for_function("() => document.querySelector('#estimate').textContent")
    rows = page.locator("#classes li")
    assert rows.count() == 4
    heading = rows.nth(0)
    assert heading.locator(".name").text_content() == "animal"
    assert heading.locator("button").count() == 0  # nothing is dropped on it
    names = page.locator("#classes button .name").all_text_contents()
    assert names == ["cat", "dog", "plant"]
    below = sum(map(int, page.locator("#classes button .all").all_text_contents()[:2]))
    assert int(heading.locator(".all").text_content()) == below
    left = "each => each.firstElementChild.getBoundingClientRect().left"
    assert rows.nth(1).evaluate(left) > rows.nth(3).evaluate(left)
    page.click('[data-view="check"]')
    caption = page.locator(".caption", has_text="animal (").first
    caption.wait_for()
    caption.locator("xpath=ancestor::*[@role='option']").click()
    note = page.locator("#item-note")
    page.wait_for_function("() => document.querySelector('#item-note').textContent.includes(';')")
    label, _, above = note.text_content().partition("; ")
    assert label.startswith(("animal/cat, ", "animal/dog, "))
    assert above.startswith("animal is ")
    # A decision changes which of them are sure: the page knows it from the differences.
    page.keyboard.press("Enter")
    while not (found := page.evaluate(ABOVE)):  # until the page has the server's last state
        page.wait_for_timeout(50)
    shown, whole = found
    assert shown == whole
    assert whole
    page.click("#classes button >> nth=1")
    assert page.locator("#pinned-title").text_content() == "animal/dog"


def test_without_a_separator_classes_are_a_list(animals, serve, visit):
    page = visit(serve(animals))
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 3")
    assert page.locator("#classes .above").count() == 0
    names = page.locator("#classes button .name").all_text_contents()
    assert names == ["animal/cat", "animal/dog", "plant"]
