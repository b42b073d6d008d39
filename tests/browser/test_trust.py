"""Slips of a person at the page: a double click, a key in haste, a name spelled otherwise."""

import numpy as np
import pytest

from fewlabels.features import FeatureSet
from fewlabels.labeling.project import Project

from .test_page import (
    count,
    focused,
    in_database,
    press_digit_of,
    wait_for_server,
    wait_saved,
    wait_sent,
)


def settled(page):
    page.wait_for_selector('#grid[aria-busy="false"]')


def wait_at_least(page, n):
    """Until so many images are labelled, or more."""
    page.wait_for_function(
        "n => Number(document.querySelector('#n-yours').textContent) >= n", arg=n
    )


def origins(folder):
    decided, _ = in_database(folder)
    return [each.origin for each in decided.values() if each.origin != "import"]


def test_digits_choose_the_classes_beside_the_picture(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.locator('.tile[aria-label*=", plum, "][aria-label*="sure"]').first.click()
    name = focused(page)[0]
    offered = page.locator("#candidates button")
    offered.first.wait_for()
    page.wait_for_function(
        "() => document.querySelector('#candidates button').innerText.includes('plum')"
    )
    page.keyboard.press("1")  # of the alphabet this would be the apple
    wait_sent(page, 7)
    wait_saved(page)
    assert in_database(project)[0][name].label == "plum"
    settled(page)
    name = focused(page)[0]
    second = page.locator("#candidates[aria-busy=false] button").nth(1)
    assert second.locator("kbd").inner_text() == "2"
    label = second.get_attribute("data-label")
    page.keyboard.press("2")
    wait_sent(page, 8)
    wait_saved(page)
    assert in_database(project)[0][name].label == label


@pytest.mark.parametrize("view", ["check", "class"])
def test_enter_acts_on_the_picture_after_a_click_on_a_view_or_a_class(project, serve, visit, view):
    page = visit(serve(project))
    settled(page)
    page.click(f'[data-view="{view}"]')
    if view == "class":
        page.click("#classes button >> nth=1")
    name, label, _ = focused(page)
    assert label in page.inner_text("#confirm")
    assert page.evaluate("document.activeElement.id") == "grid"  # keys act on pictures
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    wait_saved(page)
    assert in_database(project)[0][name].label == label


def test_the_key_and_the_button_mean_the_class_of_the_picture_in_focus(project, serve, visit):
    page = visit(serve(project), height=1100)
    settled(page)
    # A click on a picture of the second class, which is in sight below the first.
    page.locator('.tile[aria-label*=", leek, "]:not([aria-label*="label"])').first.click()
    label = focused(page)[1]
    assert page.inner_text("#pinned-title") == label == "leek"
    n = int(page.inner_text("#pinned-words").split()[1])
    page.keyboard.press("Shift+Enter")
    wait_sent(page, 6 + n)
    wait_saved(page)
    decided, _ = in_database(project)
    assert {each.label for each in decided.values() if each.origin == "confirmed"} == {"leek"}


def test_confirm_clicked_twice_leaves_the_next_class_alone(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    title = page.inner_text("#pinned-title")
    n = len(page.locator(f'.tile[aria-label*=", {title}, "][aria-label*="sure"]').all())
    button = page.locator("#pinned-confirm")
    button.dblclick()
    wait_at_least(page, 6 + n)
    wait_saved(page)
    assert len(origins(project)) == n
    button.click(delay=20)  # and once more, slowly: goes on, or asks
    wait_saved(page)
    decided, _ = in_database(project)
    assert {each.label for each in decided.values() if each.origin == "confirmed"} == {title}
    assert len(origins(project)) == n


def test_a_key_held_down_confirms_one_picture(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.keyboard.down("Enter")
    for _ in range(5):
        page.keyboard.down("Enter")  # as the keyboard repeats it
    page.keyboard.up("Enter")
    wait_at_least(page, 7)
    wait_saved(page)
    assert origins(project) == ["person"]


@pytest.fixture
def doubtful(project):
    """The same project with one label per class: nothing can be called sure."""
    with Project.open(project, write=True) as made:
        made.journal.decide(
            dict.fromkeys(f"{n}/01.png" for n in ("apple", "leek", "plum")), origin="import"
        )
    return project


def test_doubtful_ones_are_not_confirmed_without_a_question(doubtful, serve, visit):
    page = visit(serve(doubtful))
    settled(page)
    assert count(page, "sure") == 0
    assert page.inner_text("#pinned-words").startswith("Confirm all")
    page.keyboard.press("Shift+Enter")
    assert "are doubtful" in page.inner_text("#ask-words")
    page.keyboard.press("Enter")  # the safe answer has the focus
    page.wait_for_selector("#ask", state="hidden")
    assert count(page, "yours") == 3
    page.keyboard.press("Shift+Enter")
    page.click("#ask-yes")
    page.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 15")
    assert page.inner_text("#pinned-title") == "leek"  # goes on after the question
    wait_saved(page)
    assert set(origins(doubtful)) == {"confirmed"}  # no evidence of the accuracy


def test_a_question_right_after_another_is_answered(doubtful, serve, visit):
    page = visit(serve(doubtful))
    settled(page)
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("#ask[open]")
    page.evaluate(  # both before the browser says that the first question is closed
        """() => {
            document.querySelector("#ask-no").click();
            document.querySelector("#pinned-confirm").click();
        }"""
    )
    page.wait_for_selector("#ask[open]")
    page.click("#ask-yes")
    wait_at_least(page, 16)
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("#ask[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#ask", state="hidden")
    wait_saved(page)
    assert set(origins(doubtful)) == {"confirmed"}


def test_one_doubtful_image_is_spoken_of_as_one(doubtful, serve, visit):
    with Project.open(doubtful, write=True) as made:
        others = [f"apple/{i:02d}.png" for i in range(1, 20) if i != 7]
        made.journal.decide(dict.fromkeys(others), origin="person", mark="skip")
    page = visit(serve(doubtful))
    settled(page)
    assert page.inner_text("#pinned-title") == "apple"
    assert page.inner_text("#pinned-words") == "Confirm 1 doubtful…"
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("#ask[open]")
    said = page.inner_text("#ask")
    assert said.startswith("Confirm it as “apple”?")
    assert "This label is doubtful" in said
    assert "Look at it first" in said


def test_one_confirmed_class_leaves_the_button_of_the_others(tmp_path, serve, visit):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(10), 40)
    vectors = rng.gamma(1.0, size=(10, 24))[truth] + 0.5 * rng.gamma(1.0, size=(400, 24))
    features = FeatureSet.from_arrays(vectors.astype(np.float32), [-1] * 400, [])
    with Project.create(tmp_path / "big.fewlabels", features, title="big") as made:
        made.journal.decide(
            {f"row {40 * way + i}": f"class {way}" for way in range(10) for i in range(5)},
            origin="import",
        )
    page = visit(serve(tmp_path / "big.fewlabels"))
    settled(page)
    page.click("#classes button >> nth=0")
    page.click("#pinned-confirm")
    wait_at_least(page, 70)
    wait_for_server(page, "searched")
    page.reload()
    page.wait_for_selector(".tile")
    for way in range(1, 10):
        page.click(f"#classes button >> nth={way}")
        assert page.is_visible("#pinned-confirm"), way
        assert page.inner_text("#pinned-confirm").startswith("Confirm"), way
    n = page.inner_text("#n-outliers") or "0"
    assert int(n) <= 0.05 * 400


def test_a_look_alike_name_asks_first(project, serve, visit):
    page = visit(serve(project))
    for typed in ("App le", "LEEK"):
        page.keyboard.press("l")
        page.keyboard.type(typed)
        assert page.locator("#palette-list li").count() == 2
        page.keyboard.press("Enter")  # the class that exists comes first
        page.wait_for_selector("#palette", state="hidden")
    wait_sent(page, 8)
    assert page.locator("#classes button").count() == 3
    page.keyboard.press("l")
    page.keyboard.type("leek ")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    page.keyboard.type("LE-EK")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "differ only by case" in page.inner_text("#ask-words")
    page.keyboard.press("Escape")
    wait_saved(page)
    assert {each.label for each in in_database(project)[0].values()} == {"apple", "leek", "plum"}


def test_a_part_of_a_name_finds_the_class_whatever_is_between(project, serve, visit):
    with Project.open(project, write=True) as made:
        plums = [name for name, each in made.journal.current.items() if each.label == "plum"]
        made.journal.decide(dict.fromkeys(plums, "Arla-Natural-Yoghurt"), origin="import")
    page = visit(serve(project))
    name = focused(page)[0]
    page.keyboard.press("l")
    page.keyboard.type("arla nat")
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    wait_saved(page)
    assert in_database(project)[0][name].label == "Arla-Natural-Yoghurt"


def test_rename_merge_delete_undo_redo(project, serve, visit):
    page = visit(serve(project))
    settled(page)

    def classes():
        return page.locator("#classes .name").all_inner_texts()

    page.locator("#classes button").nth(1).click(button="right")
    assert page.is_visible("#class-dialog")
    page.keyboard.type("kale <b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#classes button[title^='kale <b>:']")
    assert classes() == ["apple", "kale <b>", "plum"]
    assert "kale <b>" in page.get_attribute("#undo", "title")
    page.click("#classes button >> nth=2")
    page.keyboard.press("r")
    page.keyboard.type("apple")
    assert "Merge into “apple”" in page.inner_text("#class-rename")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 2")
    wait_saved(page)
    assert in_database(project)[0]["plum/00.png"].label == "apple"
    page.keyboard.press("u")
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 3")
    page.click("#redo")
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 2")
    page.keyboard.press("Control+z")
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 3")
    page.locator("#classes button").nth(2).click(button="right")
    page.click("#class-delete")
    page.wait_for_function("() => document.querySelectorAll('#classes button').length === 2")
    wait_saved(page)
    assert "plum/00.png" not in in_database(project)[0]


def test_a_class_that_was_undone_is_not_listed(project, serve, visit):
    page = visit(serve(project))
    page.keyboard.press("l")
    page.keyboard.type("kale")
    page.keyboard.press("Enter")
    page.wait_for_selector("#classes button[title^='kale']")
    page.wait_for_selector("#undo:enabled")
    assert page.get_attribute("#undo", "title") == "Undo: kale (u)"
    page.keyboard.press("u")
    wait_sent(page, 6)
    page.wait_for_selector("#undo:disabled")  # imported labels are not undone
    assert page.locator("#classes button").count() == 3


def test_a_right_click_offers_classes_and_decides_nothing(project, serve, visit):
    page = visit(serve(project))
    tile = page.locator(".tile").nth(3)
    name = tile.get_attribute("aria-label").split(", ")[0]
    tile.click(button="right")
    assert page.is_visible("#palette")
    assert focused(page)[0] == name
    page.keyboard.press("Escape")
    assert count(page, "yours") == 6


def test_none_of_these_and_skip(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    first = focused(page)[0]
    assert page.is_visible("#none")
    assert page.is_visible("#skip")
    page.keyboard.press("n")
    wait_sent(page, 7)
    settled(page)  # the answer may put another image in focus
    second = focused(page)[0]
    page.keyboard.press("s")
    page.wait_for_function("() => document.querySelector('#undo').title === 'Undo: skipped (u)'")
    assert focused(page)[0] not in (first, second)
    page.click('[data-view="yours"]')
    assert page.locator(f'.tile[aria-label="{first}, none of these, your decision"]').count() == 1
    assert page.locator(f'.tile[aria-label^="{second}, "][aria-label$="skipped"]').count() == 1
    wait_saved(page)
    with Project.open(project) as made:
        assert made.journal.marks == {first: "none", second: "skip"}


def test_the_focus_stays_in_its_class_when_the_answer_moves_the_picture(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    wait_saved(page)
    names = page.evaluate("async () => (await (await fetch('/api/project')).json()).names")
    title = page.inner_text("#pinned-title")
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    settled(page)
    name = focused(page)[0]

    def answer(route):  # as if the model had changed its mind about the picture in focus
        found = route.fetch(url=route.request.url.partition("?")[0]).json()
        found["labels"][names.index(name)] = found["classes"].index("plum")
        route.fulfill(json=found)

    page.route("**/api/state*", answer)
    page.wait_for_selector(f'.tile[aria-label^="{name}, plum"]', state="attached")
    assert page.inner_text("#pinned-title") == title == "apple"
    assert focused(page)[0] != name
    assert focused(page)[1] == title


def test_two_windows_see_each_other(project, serve, visit):
    address = serve(project)
    one, other = visit(address), visit(address)
    settled(other)
    other.clock.install()
    one.keyboard.press("Enter")
    wait_sent(one, 7)
    wait_saved(one)
    for _ in range(100):  # seconds of the other window, in which nobody does anything
        other.clock.run_for(1000)
        other.wait_for_timeout(20)
        if count(other, "yours") == 7:
            break
    assert count(other, "yours") == 7


def test_undo_in_a_window_that_has_not_seen_the_last_decision(project, serve, visit):
    address = serve(project)
    one = visit(address)
    one.keyboard.press("Enter")
    one.wait_for_selector("#undo:enabled")
    stale = visit(address)
    stale.wait_for_selector("#undo:enabled")
    stale.context.route("**/api/state**", lambda route: route.abort())
    settled(one)
    one.keyboard.press("Enter")
    wait_sent(one, 8)
    wait_saved(one)
    with stale.expect_response("**/api/undo*"):
        stale.keyboard.press("u")
    assert len(origins(project)) == 2
    stale.wait_for_function(
        "() => document.querySelector('#toast').textContent.includes('another window')"
    )
    stale.close()  # else it asks again
    stale.complaints.clear()  # the browser notes what was refused


def test_the_large_picture_answers_to_the_same_keys(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.locator(".tile").nth(2).dblclick()
    page.wait_for_function("() => document.querySelector('#picture').naturalWidth > 0")
    box = page.locator("#picture").bounding_box()
    assert box["width"] > 500  # of 24 pixels
    assert box["height"] > 500
    name = page.inner_text("#item-name")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#item-name") != name
    page.wait_for_selector("#examples img")
    assert page.locator("#examples figure").count() == 2
    name = page.inner_text("#item-name")
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    assert page.inner_text("#item-name") != name
    page.keyboard.press("z")
    page.wait_for_selector("#picture-button.zoomed")
    page.wait_for_function(
        "() => document.querySelector('#picture').complete && document.querySelector('#picture')"
        ".naturalWidth === 24"
    )
    assert page.locator("#picture").bounding_box()["width"] >= box["width"]  # never smaller
    press_digit_of(page, "plum")
    wait_sent(page, 8)
    page.keyboard.press("Escape")
    page.wait_for_selector("#grid >> visible=true")
    assert not page.evaluate("document.body.classList.contains('large')")


def test_a_missing_file_is_said_and_not_confirmed(project, serve, visit):
    address = serve(project)
    (project.parent / "photos" / "apple" / "05.png").unlink()
    page = visit(address)
    page.wait_for_selector('.tile[aria-label^="apple/05.png"] .words')
    settled(page)
    page.keyboard.press("Shift+Enter")
    wait_at_least(page, 10)
    wait_saved(page)
    assert "apple/05.png" not in in_database(project)[0]
    page.wait_for_selector('.tile[aria-label^="apple/05.png"][aria-label$="file is missing"]')
    page.complaints.clear()  # the browser notes the picture that is not there


def test_letters_can_be_switched_off(project, serve, visit):
    page = visit(serve(project))
    page.keyboard.press("?")
    assert page.locator("#letters").count() == 1
    page.uncheck("#letters")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.press("l")
    assert not page.is_visible("#palette")
    page.reload()
    page.wait_for_selector(".tile")
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    wait_saved(page)
    assert origins(project) == ["person"]


def test_whole_pictures_instead_of_squares(project, serve, visit):
    page = visit(serve(project))
    fit = "getComputedStyle(document.querySelector('.tile img')).objectFit"
    assert page.evaluate(fit) == "cover"
    page.keyboard.press("f")
    assert page.evaluate(fit) == "contain"


def test_images_of_no_class_are_named_together_in_three_keys(project, serve, visit):
    with Project.open(project, write=True) as made:
        made.journal.decide({"plum/00.png": None, "plum/01.png": None}, origin="import")
    page = visit(serve(project))
    page.click("text=None of these?")
    assert "Name a new class" in page.inner_text("#confirm")
    # The badge tells how likely that is, not how sure the class would be.
    probably = page.inner_text("#item-note").partition("(")[2].partition(")")[0]
    assert page.inner_text(".tile.focus .doubt") == f"∅ {probably}"
    page.keyboard.press("a")
    page.wait_for_selector('.tile[aria-selected="true"]')
    n = page.locator('.tile[aria-selected="true"]').count()
    assert n > 5
    page.keyboard.press("Enter")
    page.keyboard.type("plum")
    page.keyboard.press("Enter")
    wait_sent(page, 4 + n)
    wait_saved(page)
    decided, _ = in_database(project)
    named = [path for path, each in decided.items() if each.origin == "person" and each.label]
    assert all(path.startswith("plum/") for path in named)


def test_enter_twice_or_held_down_gives_no_name_that_was_not_typed(project, serve, visit):
    with Project.open(project, write=True) as made:
        made.journal.decide({"plum/00.png": None, "plum/01.png": None}, origin="import")
    page = visit(serve(project))
    page.click("text=None of these?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#palette[open]")
    page.keyboard.press("Enter")
    assert page.is_visible("#palette")
    page.keyboard.press("ArrowDown")
    page.keyboard.down("Enter")
    page.wait_for_selector("#palette", state="hidden")  # chosen by an arrow
    page.keyboard.up("Enter")
    wait_at_least(page, 5)
    page.keyboard.down("Enter")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type("pl")
    for _ in range(3):
        page.keyboard.down("Enter")  # as the keyboard repeats it
    assert page.is_visible("#palette")
    page.keyboard.up("Enter")
    page.keyboard.press("Escape")
    wait_saved(page)
    assert origins(project) == ["person"]


def test_more_like_this(project, serve, visit):
    page = visit(serve(project))
    page.locator('.tile[aria-label^="leek/"]').first.click()
    name = focused(page)[0]
    assert page.is_visible("#like")
    page.keyboard.press("m")
    page.wait_for_function(
        "() => document.querySelector('#pinned-title').textContent.startsWith('Like')"
    )
    assert focused(page)[0] == name  # itself first
    order = page.locator(".tile").evaluate_all(
        "tiles => tiles.sort((a, b) => a.ariaPosInSet - b.ariaPosInSet)"
        ".map((tile) => tile.ariaLabel)"
    )
    assert sum(each.startswith("leek/") for each in order[:10]) > 7
    page.keyboard.press("Escape")
    assert page.get_attribute('[data-view="class"]', "aria-selected") == "true"


def test_tabs_move_by_arrows(project, serve, visit):
    page = visit(serve(project))
    page.focus('[data-view="class"]')
    page.keyboard.press("ArrowRight")
    assert page.get_attribute('[data-view="check"]', "aria-selected") == "true"
    assert page.evaluate("document.activeElement.dataset.view") == "check"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute('[data-view="map"]', "aria-selected") == "true"
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute('[data-view="yours"]', "aria-selected") == "true"


def test_an_empty_list_says_how_many_may_be_wrong(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    wait_for_server(page, "searched")

    def answer(route):  # nothing is doubtful, and 6 % are wrong
        found = route.fetch().json()
        estimate = {**found["state"]["estimate"], "accuracy": 0.94}
        none = {"suggested": [], "doubtful_below": 0}
        route.fulfill(json={**found, "state": {**found["state"], **none, "estimate": estimate}})

    page.route("**/api/project", answer)
    page.reload()
    page.wait_for_selector(".tile")
    assert count(page, "doubtful") == 0
    page.click('[data-view="check"]')
    said = page.inner_text("#empty")
    assert said.startswith("Nothing is doubtful.")
    assert "about 6 % of the 54 sure ones may be wrong" in said


def test_a_rectangle_selects_and_a_drag_onto_a_class_labels(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    tiles = page.locator(".tile")
    first, last = (tiles.nth(i).bounding_box() for i in (1, 3))
    page.mouse.move(first["x"] + 20, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(last["x"] + 20, last["y"] + 40, steps=5)
    page.mouse.up()
    chosen = page.locator('.tile[aria-selected="true"]')
    names = [
        each.split(", ")[0] for each in chosen.evaluate_all("all => all.map((t) => t.ariaLabel)")
    ]
    assert len(names) == 3
    onto = page.locator("#classes button", has_text="plum").bounding_box()
    page.mouse.move(first["x"] + 30, first["y"] + 30)
    page.mouse.down()
    page.mouse.move(onto["x"] + 30, onto["y"] + 10, steps=5)
    page.mouse.up()
    wait_sent(page, 9)
    assert page.inner_text("#pinned-title") == "apple"  # the drag was no click on the class
    wait_saved(page)
    decided, _ = in_database(project)
    assert {decided[name].label for name in names} == {"plum"}
    tiles.first.click()  # and the next click is one
    assert page.locator('.tile[aria-selected="true"]').count() == 0


def test_escape_ends_a_drag_and_nothing_is_labelled(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    tiles = page.locator(".tile")
    tiles.nth(1).click()
    tiles.nth(2).click(modifiers=["Control"])
    selected = page.locator('.tile[aria-selected="true"]')
    carried, other = (tiles.nth(i).bounding_box() for i in (1, 4))
    onto = page.locator("#classes button", has_text="plum").bounding_box()

    def drag(start, end):
        page.mouse.move(start["x"] + 30, start["y"] + 30)
        page.mouse.down()
        page.mouse.move(end["x"] + 35, end["y"] + 10, steps=5)
        page.keyboard.press("Escape")
        page.mouse.move(end["x"] + 40, end["y"] + 12)
        assert page.locator(".band, .target, .carrying").count() == 0
        page.mouse.up()

    for start, end in ((carried, onto), (carried, carried), (other, carried)):
        drag(start, end)
        assert selected.count() == 2
        assert count(page, "yours") == 6
    assert page.inner_text("#pinned-title") == "apple"
    page.keyboard.press("Escape")  # the drag is over: the key does what it does otherwise
    assert selected.count() == 0
    wait_saved(page)
    assert origins(project) == []


def test_every_format_is_downloaded_from_a_menu(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    assert page.is_visible("#exports summary")
    for name, file in (
        ("label-studio", "tasks.json"),
        ("hf", "labels-hf.zip"),
        ("report", "report.html"),
    ):
        page.click("#exports summary")
        with page.expect_download() as found:
            page.click(f'#formats a:has(b:text-is("{name}"))')
        assert found.value.suggested_filename == file
        assert found.value.path().stat().st_size > 1000
        page.wait_for_function("() => !document.querySelector('#exports').open")


def test_labels_that_the_server_suspects_are_shown_first(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    wait_saved(page)

    def answer(route):
        found = route.fetch().json()
        route.fulfill(json={**found, "state": {**found["state"], "suspicious": [1]}})

    page.route("**/api/project", answer)
    page.reload()
    page.wait_for_selector(".tile")
    page.click('[data-view="yours"]')
    assert page.inner_text("#pinned-title") == "Perhaps wrong"
    assert focused(page)[0] == "apple/01.png"
    assert page.locator(".tile").count() == 6


def test_a_wrong_label_is_suspected_and_one_key_corrects_it(project, serve, visit):
    given = {f"{name}/{i:02d}.png": name for name in ("apple", "leek", "plum") for i in range(8)}
    with Project.open(project, write=True) as made:
        made.journal.decide(given | {"apple/05.png": "plum"}, origin="import")
    page = visit(serve(project))
    wait_saved(page)
    page.click('[data-view="yours"]')
    page.wait_for_function(
        "() => document.querySelector('#pinned-title').innerText === 'Perhaps wrong'"
    )
    assert focused(page)[0] == "apple/05.png"
    # Beside it: what the other labels say, not what this one does.
    first = page.locator("#candidates[aria-busy=false] button").first
    first.wait_for()
    assert first.get_attribute("data-label") == "apple"
    page.keyboard.press("1")
    wait_saved(page)
    assert in_database(project)[0]["apple/05.png"].label == "apple"


def test_answers_tell_only_what_changed_and_the_page_shows_all_of_it(project, serve, visit):
    follow_answers(project, serve, visit)


def test_a_large_change_comes_in_parts_and_the_page_asks_for_all_of_it(
    project, serve, visit, monkeypatch
):
    monkeypatch.setattr("fewlabels.labeling.state.MOST_TOLD", 6)
    answers = follow_answers(project, serve, visit)
    assert any(each["more"] for each in answers)


def follow_answers(project, serve, visit):
    """Decide in several ways, and compare the page with the server's whole state."""
    page = visit(serve(project))
    settled(page)
    n = len(in_database(project)[0]) + len(in_database(project)[1])
    told = []
    page.on("response", lambda answer: "since=" in answer.url and told.append(answer))
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    settled(page)
    assert sum(each.request.method == "POST" for each in told) == 1
    page.keyboard.press("n")  # none of these
    wait_sent(page, 8)
    page.keyboard.press("l")
    page.keyboard.type("a new kind")
    page.keyboard.press("Enter")  # the numbers of the classes change
    wait_sent(page, 9)
    page.keyboard.press("u")
    wait_sent(page, 8)
    page.keyboard.press("r")
    page.fill("#class-name", "renamed")
    page.keyboard.press("Enter")
    page.wait_for_selector('#classes button:has-text("renamed")')
    asked = """async () => {
      const {page} = await import("/page/shared.js");
      const whole = await (await fetch("/api/state")).json();
      const {version, labels, confidence, marks, classes, outliers, searched} = page.state;
      const shown = {labels, confidence, classes};
      return searched && version === whole.version
        && [{...shown, marks: marks.join(""), outliers: [...outliers]}, whole];
    }"""
    while not (found := page.evaluate(asked)):  # until the page has the server's last state
        page.wait_for_timeout(50)
    shown, whole = found
    assert shown == {key: whole[key] for key in shown}
    answers = [each.json() for each in told if each.status == 200]
    assert sum(each.request.method == "POST" for each in told) == 5
    assert all("since" in each for each in answers)
    assert all(each["marks"].count("#") > n / 2 for each in answers)  # no change
    return answers


def test_sort_by_name_and_by_confidence(project, serve, visit):
    page = visit(serve(project), height=1400)
    settled(page)
    assert page.is_visible("#sort")
    order = """async () => {
      const {page} = await import("/page/shared.js");
      const {state, project, layout} = page;
      const section = layout.sections.find(({way, open}) => way !== undefined && open.length > 2);
      const open = section.items.filter((item) => state.marks[item] === "0");
      return [open.map((item) => project.names[item]), open.map((item) => state.confidence[item])];
    }"""
    names, sure = page.evaluate(order)
    assert sure == sorted(sure)
    name = focused(page)[0]
    page.keyboard.press("t")
    by_name, _ = page.evaluate(order)
    assert by_name == sorted(names)
    assert focused(page)[0] == name
    page.click("#sort")
    assert page.evaluate(order) == [names, sure]
