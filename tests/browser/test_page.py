"""The labelling page as people use it: keyboard, mouse, touch; and after the server was killed."""

import csv
import io

import numpy as np

from fewlabels.features import FeatureSet
from fewlabels.labeling.project import Project


def count(page, which):
    return int(page.inner_text(f"#n-{which}").replace(",", ""))


def focused(page):
    """Name and label of the image that keys act on."""
    return page.locator(".tile.focus").get_attribute("aria-label").split(", ")


def wait_sent(page, n):
    page.wait_for_function(
        "n => document.querySelector('#n-yours').textContent.replace(',', '') == n", arg=str(n)
    )


def press_digit_of(page, name):
    """Label the image in focus by the key that is shown beside the class."""
    page.wait_for_selector('#grid[aria-busy="false"]')  # the answer may put another image in focus
    offered = page.locator(f'#candidates[aria-busy=false] button[data-label="{name}"] kbd')
    page.keyboard.press(offered.inner_text())


def wait_for_server(page, what):
    """Until the server's state is "settled", or "searched" for images of no class."""
    asked = "async (what) => (await (await fetch('/api/state')).json())[what]"
    for _ in range(2000):
        if page.evaluate(asked, what):
            return
        page.wait_for_timeout(30)
    raise AssertionError(f"the server's state was never {what}")


def wait_saved(page):
    """Until the page has the thorough answer to its last decision, and the server no later one."""
    page.wait_for_selector('#grid[aria-busy="false"]', state="attached")
    wait_for_server(page, "settled")


def download(page):
    with page.expect_download() as found:
        page.keyboard.press("d")
    return {
        row["path"]: row
        for row in csv.DictReader(io.StringIO(found.value.path().read_text(encoding="utf-8-sig")))
    }


def in_database(folder):
    with Project.open(folder) as project:
        return project.journal.current, project.journal.model_labels


def test_correct_five_by_keyboard_undo_reload_download(project, serve, visit):
    page = visit(serve(project))
    assert count(page, "yours") == 6
    assert "token" not in page.url
    corrected = {}
    for n, name in enumerate(("leek", "plum", "leek", "apple", "plum"), start=7):
        page.wait_for_selector('#grid[aria-busy="false"]')
        corrected[focused(page)[0]] = name
        press_digit_of(page, name)
        wait_sent(page, n)
    assert len(corrected) == 5  # the focus went on each time
    wait_sent(page, 11)
    last = list(corrected)[-1]
    page.keyboard.press("u")
    wait_sent(page, 10)
    assert focused(page)[0] == last
    del corrected[last]
    wait_saved(page)
    page.reload()
    page.wait_for_selector(".tile")
    wait_sent(page, 10)
    rows = download(page)
    decided, guessed = in_database(project)
    assert {path: decided[path].label for path in corrected} == corrected
    assert sum(each.origin == "person" for each in decided.values()) == 4
    assert len(rows) == 60
    for path, row in rows.items():
        if path in decided:
            assert (row["label"], row["origin"]) == (decided[path].label, decided[path].origin)
        else:
            assert (row["label"], float(row["confidence"]), row["origin"]) == (
                guessed[path].label,
                guessed[path].confidence,
                "model",
            )


def test_nothing_is_lost_when_the_server_is_killed(project, serve_apart, visit):
    server = serve_apart(project)
    page = visit(server.address)
    corrected = {}
    for name in ("leek", "plum", "leek"):
        page.wait_for_selector('#grid[aria-busy="false"]')
        path = focused(page)[0]
        with page.expect_response("**/api/decide*"):
            page.locator("#candidates button:enabled", has_text=name).click()
        corrected[path] = name
    page.wait_for_selector('#grid[aria-busy="false"]')
    lost, label = focused(page)[:2]
    server.kill()
    page.keyboard.press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "does not answer" in page.inner_text("#trouble")
    page.wait_for_function(
        "() => document.querySelector('#n-yours').textContent === '9'"
    )  # what was not kept does not look as if it were
    assert "1 decision is not saved yet" in page.inner_text("#trouble")
    again = serve_apart(project)  # the lock is free again
    assert again.address == server.address  # the port and the token are the same
    wait_sent(page, 10)  # the page goes on by itself, and sends what was not sent
    page.wait_for_selector("#trouble", state="hidden")
    page.complaints.clear()  # the browser notes the refused connection
    wait_saved(page)
    corrected[lost] = label
    rows = download(page)
    decided, _ = in_database(project)
    assert {path: rows[path]["label"] for path in corrected} == corrected
    assert {
        path: row["label"] for path, row in rows.items() if row["origin"] == "person"
    } == corrected
    assert {path for path, each in decided.items() if each.origin == "person"} == set(corrected)
    page.complaints.clear()


def test_nothing_is_lost_when_the_server_that_begins_a_project_is_killed(
    tmp_path, serve_apart, visit
):
    """Whoever opens the project again has the same images under the same numbers."""
    rng = np.random.default_rng(0)
    labels = np.full(60, -1)
    labels[:6] = np.arange(6) % 3
    features = 4 * np.eye(3)[np.arange(60) % 3] + rng.uniform(size=(60, 3))
    file, project = tmp_path / "fruit.safetensors", tmp_path / "fruit.fewlabels"
    FeatureSet.from_arrays(features, labels, ["apple", "leek", "plum"]).save(file)
    server = serve_apart(file, "--no-open")
    page = visit(server.address)
    wait_saved(page)
    assert count(page, "yours") == 6
    lost, label = focused(page)[:2]
    server.kill()
    page.keyboard.press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    serve_apart(file, "--no-open")
    wait_sent(page, 7)
    wait_saved(page)
    assert in_database(project)[0][lost].label == label
    page.complaints.clear()  # the browser notes the refused connection


def test_from_the_first_label_on(project, serve, visit):
    with Project.open(project, write=True) as empty:
        empty.journal.decide(dict.fromkeys(empty.journal.current), origin="person")
    page = visit(serve(project))
    assert page.inner_text("#pinned-title") == "Name the kinds"
    said = page.inner_text("#pinned-note")
    assert said == "choose an image, press Enter and name its kind"
    assert "Name the class" in page.inner_text("#confirm")
    assert page.locator(".tile").count() == 24
    assert focused(page)[1:] == ["no label"]
    for n, name in enumerate(("leek", "apple"), start=1):
        page.keyboard.press("l")
        assert page.is_visible("#palette")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        wait_sent(page, n)
    wait_saved(page)
    page.wait_for_function("() => document.querySelector('#n-doubtful').textContent === '58'")
    # Still there, and nothing is called sure before hidden labels tell how sure.
    assert page.inner_text("#pinned-title") == "Name the kinds"
    assert page.inner_text("#pinned-note").startswith("2 kinds named")
    assert count(page, "sure") == 0

    def name(label):
        page.keyboard.press("l")
        page.keyboard.type(label)
        page.keyboard.press("Enter")

    name("apple")  # two labels of a class can be hidden: too few
    page.wait_for_function(
        "() => document.querySelector('#estimate').textContent.includes('right')"
    )
    page.wait_for_selector("#candidates[aria-busy=false]")
    assert count(page, "sure") == 0
    assert "%" not in page.inner_text("#candidates")
    page.reload()
    page.wait_for_selector(".tile")
    assert page.inner_text("#pinned-title") == "Name the kinds"
    name("leek")
    wait_sent(page, 4)
    page.wait_for_function("() => document.querySelector('#n-sure').textContent !== '0'")
    assert page.get_attribute('[data-view="begin"]', "aria-selected") == "true"
    page.click('[data-view="class"]')
    page.wait_for_selector('[data-view="begin"]', state="hidden")


def test_the_page_counts_as_the_advice_does(project, serve, visit):
    page = visit(serve(project))
    wait_saved(page)
    page.reload()
    page.wait_for_selector(".tile")
    n = count(page, "doubtful")
    said = page.inner_text("#advice").lower()
    assert said.startswith(
        "no image is doubtful"
        if n == 0
        else "1 image is doubtful"
        if n == 1
        else f"{n} images are doubtful"
    )


def test_several_at_once_a_new_class_and_the_whole_class(project, serve, visit):
    page = visit(serve(project))
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator('.tile[aria-selected="true"]').count() == 3
    assert page.inner_text("#item-name") == "3 images selected"
    page.keyboard.press("l")
    page.keyboard.type("pink <lady>")
    assert "New class" in page.inner_text("#palette-list")
    page.keyboard.press("Enter")
    wait_sent(page, 9)
    page.wait_for_selector("#classes button[title^='pink <lady>']")
    page.wait_for_selector('#grid[aria-busy="false"]')  # what is sure may change until then
    page.keyboard.press("]")
    page.keyboard.press("Shift+Enter")  # the whole of the second class
    page.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 15")
    before = count(page, "yours")
    page.keyboard.press("u")
    wait_sent(page, 9)
    assert before > 15
    wait_saved(page)
    decided, _ = in_database(project)
    assert sum(each.label == "pink <lady>" for each in decided.values()) == 3


def test_confirm_remove_and_walk_about(project, serve, visit):
    page = visit(serve(project))
    name, label, _ = focused(page)
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    assert focused(page)[0] != name
    page.keyboard.press("v")
    page.keyboard.press("v")
    assert page.get_attribute('[data-view="yours"]', "aria-selected") == "true"
    tiles = page.locator(".tile")
    assert tiles.count() == 7
    page.click(f'.tile[aria-label^="{name}, "]')
    assert focused(page)[1:] == [label, "your label"]
    page.keyboard.press("Backspace")
    wait_sent(page, 6)
    page.keyboard.press("v")
    page.keyboard.press("/")
    page.keyboard.type("leek/0")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.tile').length === 10")
    assert page.locator("#classes button").count() < 3  # the list is filtered too
    page.keyboard.press("Escape")
    page.wait_for_function("() => document.querySelectorAll('.tile').length > 10")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("End")


def test_a_name_for_images_of_no_class(project, serve, visit):
    with Project.open(project, write=True) as made:
        made.journal.decide({"plum/00.png": None, "plum/01.png": None}, origin="import")
    page = visit(serve(project))
    entry = page.locator("#outliers")
    entry.wait_for()  # it comes after the thorough answer
    assert entry.inner_text().split() == ["None", "of", "these?", "20"]
    assert "of the named classes right" in page.inner_text("#estimate")
    entry.focus()
    page.keyboard.press("Enter")  # on a button, presses it
    assert entry.get_attribute("aria-current") == "true"
    assert page.inner_text("#pinned-title") == "None of these?"
    assert not page.is_visible("#pinned-confirm")  # nobody wants them all confirmed at once
    names = page.locator(".tile").evaluate_all("tiles => tiles.map((tile) => tile.ariaLabel)")
    assert len(names) == 20
    assert all(name.startswith("plum/") and "% none of these" in name for name in names)
    page.keyboard.press("Control+a")
    page.keyboard.press("Shift+Enter")  # confirms nothing
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("l")
    page.keyboard.type("plum")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#n-outliers').textContent === '0'"
    )  # the others are plums too
    wait_sent(page, 6)
    assert "looks like none" in page.inner_text("#empty")
    assert "named" not in page.inner_text("#estimate")
    page.keyboard.press("v")
    assert page.get_attribute('[data-view="class"]', "aria-selected") == "true"
    page.wait_for_selector("#outliers", state="hidden")
    page.keyboard.press("]")
    page.keyboard.press("]")
    assert focused(page)[1] == "plum"


def test_where_all_is_of_a_class_there_is_no_such_view(project, serve, visit):
    page = visit(serve(project))
    page.wait_for_selector('#grid[aria-busy="false"]')
    wait_for_server(page, "searched")
    page.reload()
    page.wait_for_selector(".tile")
    assert not page.is_visible("#outliers")
    for _ in range(3):
        page.keyboard.press("v")
    assert page.get_attribute('[data-view="class"]', "aria-selected") == "true"


def test_mouse_alone(project, serve, visit):
    page = visit(serve(project))
    first, second = (page.locator(".tile").nth(i) for i in (1, 2))
    first.click()
    second.click(modifiers=["Control"])
    assert page.locator('.tile[aria-selected="true"]').count() == 2
    page.click("#candidates button >> nth=1")
    wait_sent(page, 8)
    page.click("#undo")
    wait_sent(page, 6)
    page.click("#pinned-confirm:has-text('sure')")
    page.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 10")
    page.wait_for_selector(
        '#grid[aria-busy="false"]'
    )  # or the thorough answer may change the label of the image in focus
    page.click("#classes button >> nth=2")
    assert focused(page)[1] == "plum"


def test_on_a_phone(project, serve, visit):
    page = visit(
        serve(project), width=360, height=740, has_touch=True, is_mobile=True, device_scale_factor=2
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".tile").nth(4).tap()
    page.tap("#several")
    page.locator(".tile").nth(5).tap()
    assert page.locator('.tile[aria-selected="true"]').count() == 2
    page.tap("#candidates button >> nth=1")
    wait_sent(page, 8)
    box = page.locator("#grid").bounding_box()
    assert box["height"] > 250  # the pictures keep most of the screen


def test_two_rows_of_pictures_at_200_percent_and_on_a_phone_on_its_side(project, serve, visit):
    address = serve(project)
    for width, height in ((720, 450), (640, 360), (844, 390), (480, 300), (360, 225)):
        page = visit(address, width=width, height=height)
        grid, tile = (page.locator(each).bounding_box() for each in ("#grid", ".tile.focus"))
        assert grid["height"] > 2 * tile["height"], (width, height)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for button in ("#confirm", "#undo", "#pinned-confirm"):
            page.locator(button).scroll_into_view_if_needed()
            assert page.is_visible(button)


def test_light_and_dark(project, serve, visit):
    address = serve(project)
    for scheme in ("light", "dark"):
        page = visit(address, color_scheme=scheme)
        red, green, blue = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (red + green + blue < 200) == (scheme == "dark")


def test_every_control_is_reached_by_tab_and_has_a_name(project, serve, visit):
    page = visit(serve(project))
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:enabled")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(({ id, dataset, tagName }) => id || dataset.view || tagName)"
                "(document.activeElement)"
            )
        )
    assert {
        "grid",
        "undo",
        "download",
        "help-button",
        "filter",
        "confirm",
        "other",
        "picture-button",
        "class",
    } <= reached
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, input')]"
        ".filter((each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length))"
        ".map((each) => each.id)"
    )
    assert nameless == []


IN_SIGHT = """() => {
  const grid = document.querySelector('#grid').getBoundingClientRect();
  return [...document.querySelectorAll('.tile')].some((tile) => {
    const box = tile.getBoundingClientRect();
    return box.top < grid.bottom && box.bottom > grid.top;
  });
}"""
SCROLL = """part => {
  const grid = document.querySelector('#grid');
  grid.scrollTop = part * grid.scrollHeight;
}"""
JUMPS = """async () => {  // thirty jumps: the most tiles, and the fewest in sight two frames later
  const grid = document.querySelector('#grid');
  const box = grid.getBoundingClientRect();
  const all = [], visible = [];
  for (let i = 0; i < 30; i++) {
    grid.scrollTop = (i * 316760) % grid.scrollHeight;
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const tiles = [...document.querySelectorAll('.tile')].map((t) => t.getBoundingClientRect());
    all.push(tiles.length);
    visible.push(tiles.filter((tile) => tile.top < box.bottom && tile.bottom > box.top).length);
  }
  return [Math.max(...all), Math.min(...visible)];
}"""


def test_thirty_thousand_scroll_without_loading_them_all(tmp_path, serve, visit):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), 5000)
    vectors = rng.gamma(1.0, size=(6, 12))[truth] + rng.gamma(0.7, size=(30_000, 12))
    features = FeatureSet.from_arrays(vectors.astype(np.float32), [-1] * 30_000, [])
    with Project.create(tmp_path / "big.fewlabels", features, title="big") as made:
        made.journal.decide(
            {f"row {5000 * way + i}": f"class {way}" for way in range(6) for i in range(3)},
            origin="import",
        )
    page = visit(serve(tmp_path / "big.fewlabels"))
    assert page.evaluate("document.querySelectorAll('.tile').length") < 400
    for part in (0.3, 0.7, 1.0):
        page.evaluate(SCROLL, part)
        page.wait_for_function(IN_SIGHT)
        assert page.evaluate("document.querySelectorAll('.tile').length") < 400
    most, least_visible = page.evaluate(JUMPS)
    assert most < 400
    assert least_visible > 0  # two frames after any jump, pictures are there
    page.keyboard.press("Home")
    press_digit_of(page, "class 1")
    wait_sent(page, 19)


LEAP = """up => new Promise((done) => {
  const grid = document.querySelector('#grid');
  grid.addEventListener('scroll', () => done(grid.scrollTop), { once: true });
  grid.scrollTop = up ? 0 : grid.scrollHeight;
})"""
PICTURES = "() => [...document.querySelectorAll('.tile img')].map((image) => image.src)"
ALL_THERE = """() =>
  [...document.querySelectorAll('.tile img')].every((image) => image.src && image.complete)"""


def test_only_pictures_in_sight_are_fetched(project, serve, visit, browser):
    context = browser.new_context(viewport={"width": 500, "height": 300})
    page = context.new_page()
    asked = []
    page.on("request", lambda request: "/thumbnail/" in request.url and asked.append(request.url))
    page.clock.install()  # timers follow the test, also on a slow machine
    page.goto(serve(project))
    page.wait_for_selector(".tile img.there")
    page.keyboard.press("+")
    page.wait_for_selector('#grid[aria-busy="false"]')  # the answer may put others in sight
    page.wait_for_function(ALL_THERE)
    assert 0 < len(set(asked)) < 60
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
    seen = set(asked)
    for i in range(9):
        page.evaluate(LEAP, i % 2 == 1)
        page.clock.run_for(30)
    assert set(asked) == seen  # nothing is requested while scrolling fast
    assert "" in page.evaluate(PICTURES)
    page.clock.run_for(100)
    page.wait_for_function(ALL_THERE)
    assert set(asked) - seen == set(page.evaluate(PICTURES)) - seen  # and then what is in sight
    assert set(asked) > seen
    context.close()


def test_without_the_link_there_is_nothing(project, serve, browser):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(serve(project).partition("?")[0])
    assert answer.status == 403
    assert "link that `fewlabels serve` printed" in page.inner_text("body")
    context.close()
