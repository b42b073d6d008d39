"""What is on the screen: words, places and colors."""

import ipaddress
import re
import socket

import pytest
from PIL import Image, ImageFile

from fewlabels.labeling.project import Project

from .test_page import focused, wait_sent
from .test_trust import settled


def box(page, selector):
    found = page.locator(selector).first.bounding_box()
    return found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_the_advice_is_a_button_that_leads_to_what_it_names(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    assert page.locator(".advice button").count() == 1
    page.click(".advice button")
    assert page.get_attribute('[data-view="check"]', "aria-selected") == "true"
    assert page.inner_text("#pinned-title") == "Label these first"
    assert "first" in page.inner_text(".advice button")  # the same word


def test_imported_labels_are_not_called_the_persons_and_right_says_of_what(project, serve, visit):
    page = visit(serve(project))
    page.wait_for_function("() => document.querySelector('#estimate').textContent")
    assert "6 labelled" in " ".join(page.inner_text(".counts").split())
    assert "yours" not in page.inner_text(".counts")
    assert "of the other labels right" in page.inner_text("#estimate")


# The letters of each element that can be read: what is cut off on the right or below cannot.
IN_SIGHT = """(where) => [...document.querySelectorAll(where)].map((element) => {
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const { bottom } = element.getBoundingClientRect();
  let read = "";
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const { right } = text.parentElement.getBoundingClientRect();
    for (let n = 0; n < text.length; n++) {
      range.setStart(text, n);
      range.setEnd(text, n + 1);
      const letter = range.getBoundingClientRect();
      const fits = letter.right <= right + 1 && letter.bottom <= bottom + 3;
      if (letter.width && fits) read += text.data[n];
    }
  }
  return read;
}).filter(Boolean)"""
SCREENS = ((1440, 900), (1060, 700), (800, 900), (390, 844), (844, 390), (640, 360))


@pytest.fixture
def long_names(project):
    """The same project; names of classes differ at the end only."""
    long = "Alpro-Vanilla-Soyghurt-of-the-shelf-number-"
    with Project.open(project, write=True) as made:
        for i, name in enumerate(("apple", "leek", "plum")):
            for n in range(2):
                made.journal.decide({f"{name}/{n:02d}.png": f"{long}{i}"}, origin="import")
    return project


def test_long_class_names_can_be_told_apart(long_names, serve, visit):
    page = visit(serve(long_names))
    seen = page.evaluate(IN_SIGHT, "#classes .name")
    assert len(seen) == 3
    assert len(set(seen)) == 3, seen


@pytest.mark.parametrize("size", SCREENS)
def test_long_names_differ_wherever_one_chooses(long_names, serve, visit, size):
    page = visit(serve(long_names), width=size[0], height=size[1])
    settled(page)
    page.wait_for_selector("#candidates[aria-busy=false]")
    offered = page.evaluate(IN_SIGHT, "#candidates .name")
    assert len(set(offered)) == len(offered) >= 2, offered
    headings = page.evaluate(IN_SIGHT, ".section .name")
    assert len(set(headings)) == len(headings) >= 1, headings
    labels = {each[-1] for each in page.evaluate(IN_SIGHT, "#item-note")}
    assert labels  # the label of the picture in focus is told in full
    page.evaluate("document.querySelector('[data-view=yours]').click()")
    captions = page.evaluate(IN_SIGHT, ".tile .caption")
    assert {each[-1] for each in captions} == {"0", "1", "2"}, captions


OUTSIDE = """(where) => {
  const shown = [...document.querySelectorAll(where)].filter((part) => part.offsetParent);
  const isCut = (part) => {
    const [inner, outer] = [part, part.parentElement].map((each) => each.getBoundingClientRect());
    const outside = inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
    return outside || part.scrollWidth > part.clientWidth + 1;
  };
  return shown.filter(isCut).map((part) => part.textContent);
}"""
OVERLAPPING = """() => [...document.querySelectorAll('.tools > *')]
  .filter((part) => part.offsetParent)
  .map((part) => part.getBoundingClientRect())
  .some((part, i, all) => i && all[i - 1].right > part.left)"""


@pytest.mark.parametrize("size", [*SCREENS, (720, 450), (320, 400)])
def test_nothing_in_the_bars_is_cut_off_or_covered(project, serve, visit, size):
    page = visit(serve(project), width=size[0], height=size[1])
    page.wait_for_function("() => document.querySelector('#estimate').textContent")
    for part in (".counts > span", ".views > button", ".advice > *", ".tools > *"):
        assert page.evaluate(OUTSIDE, part) == [], part
    assert not page.evaluate(OVERLAPPING)
    assert len(page.evaluate(IN_SIGHT, "#pinned-title")[0]) == len("apple")


def test_who_zooms_sees_the_digits_of_the_classes(project, serve, visit):
    page = visit(serve(project), width=640, height=360)
    page.wait_for_selector("#candidates[aria-busy=false] button")
    assert page.is_visible("#candidates button kbd")


def test_imported_labels_of_all_images_are_not_called_the_persons(project, serve, visit):
    with Project.open(project, write=True) as made:
        made.journal.decide(
            {f"{name}/{i:02d}.png": name for name in ("apple", "leek", "plum") for i in range(20)},
            origin="import",
        )
    page = visit(serve(project))
    page.wait_for_function("() => document.querySelector('#n-yours').textContent === '60'")
    assert page.inner_text("#advice") == "Every image has a label."
    page.click('[data-view="check"]')
    assert page.inner_text("#empty") == "Every image has a label."


def test_marks_have_a_legend_and_per_cent_one_spelling(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.click('[data-view="check"]')
    page.keyboard.press("?")
    legend = " ".join(page.inner_text("#help").split())
    assert "you gave the label" in legend
    assert "it was imported" in legend
    page.keyboard.press("Escape")
    everything = page.inner_text("body") + " ".join(
        page.locator(".tile").evaluate_all("all => all.map((tile) => tile.ariaLabel)")
    )
    assert re.search(r"\d+ %", everything)
    assert not re.search(r"\d%", everything)


def test_after_a_jump_nothing_of_the_heading_is_left_and_it_stands_once(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.click("#classes button >> nth=1")
    bar = box(page, ".pinned")
    name = page.inner_text("#pinned-title")

    def headings():
        return page.locator("#canvas .section").evaluate_all(
            """(all, top) => all.filter((head) => [...head.children].some((part) => {
              const box = part.getBoundingClientRect();
              return box.bottom > top && box.top < top + 60;
            })).map((head) => head.innerText)""",
            bar[3],
        )

    assert not [each for each in headings() if each.startswith(name)]
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 10")
    settled(page)
    name = page.inner_text("#pinned-title")
    assert not [each for each in headings() if each.startswith(name)]


def test_the_bar_does_not_move_where_it_has_no_button(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    before = box(page, "#pinned-title")
    page.click('[data-view="check"]')
    after = box(page, "#pinned-title")
    assert (before[1], before[3]) == (after[1], after[3])
    assert box(page, ".pinned")[3] == box(page, "#grid")[1]


def test_hover_on_a_candidate_does_not_look_like_its_bar(project, serve, visit):
    address = serve(project)
    for scheme in ("light", "dark"):
        page = visit(address, color_scheme=scheme)
        page.wait_for_selector("#candidates button:enabled")
        last = page.locator("#candidates button").last
        plain = last.evaluate("(button) => getComputedStyle(button).backgroundColor")
        last.hover()
        assert last.evaluate("(button) => getComputedStyle(button).backgroundColor") == plain
        # The bar itself can be seen: not the color of the panel.
        shades = page.evaluate(
            """() => {
              const canvas = new OffscreenCanvas(2, 1).getContext("2d");
              const panel = getComputedStyle(document.querySelector(".inspector")).backgroundColor;
              canvas.fillStyle = panel;
              canvas.fillRect(0, 0, 2, 1);
              const bar = document.querySelector("#candidates .bar");
              canvas.fillStyle = getComputedStyle(bar).backgroundColor;
              canvas.fillRect(1, 0, 1, 1);
              return [...canvas.getImageData(0, 0, 2, 1).data];
            }"""
        )
        assert sum(abs(a - b) for a, b in zip(shades[:3], shades[4:7], strict=True)) > 30, scheme


def test_a_selected_picture_keeps_its_colors(project, serve, visit):
    page = visit(serve(project), reduced_motion="reduce")
    settled(page)
    page.wait_for_selector(".tile.focus img.there")
    tile = page.locator(".tile").nth(2)
    page.wait_for_function("() => document.querySelectorAll('.tile')[2].querySelector('img.there')")

    def middle():
        found = tile.bounding_box()
        clip = {
            "x": found["x"] + found["width"] / 2 - 8,
            "y": found["y"] + found["height"] / 2 - 8,
            "width": 16,
            "height": 16,
        }
        return page.screenshot(clip=clip)

    before = middle()
    tile.click(modifiers=["Control"])
    assert tile.get_attribute("aria-selected") == "true"
    page.mouse.move(0, 0)
    assert middle() == before


def test_without_labels_nothing_is_called_doubtful(project, serve, visit):
    with Project.open(project, write=True) as empty:
        empty.journal.decide(dict.fromkeys(empty.journal.current), origin="person")
    page = visit(serve(project))
    page.click('[data-view="check"]')
    shown = page.inner_text("main").lower()
    assert "doubtful" not in shown
    assert "uncertain" not in shown
    assert "different from each other" in shown


# The server's answers to a confirmation name one other image whose label changed.
ONE_CHANGED = """() => {
  const send = window.fetch;
  window.fetch = async (path, options) => {
    const answer = await send(path, options);
    if (!path.startsWith("/api/confirm")) return answer;
    return Response.json({ ...(await answer.json()), n_changed: 1 });
  };
}"""


def test_one_other_is_not_several(project, serve, visit):
    page = visit(serve(project))
    settled(page)

    page.evaluate(ONE_CHANGED)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#toast').textContent")
    assert page.inner_text("#toast").endswith("· 1 other changed")
    assert page.get_attribute("#toast", "role") == "status"  # heard, not only seen


def test_a_selection_is_shown_with_its_labels_and_their_classes_together(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.click("#classes button >> nth=0")
    page.keyboard.press("Control+a")
    n = page.locator('.tile[aria-selected="true"]').count()
    assert page.locator("#strip img").count() == min(n, 8)
    assert page.inner_text("#item-note") == f"{n} apple"
    assert page.inner_text("#confirm-words") == f"✓ {n} × apple"
    page.wait_for_selector("#candidates[aria-busy=false]")
    shown = page.locator("#candidates button").first
    together = page.evaluate(
        """async () => {
          const { page } = await import("/page/shared.js");
          const api = await import("/page/api.js");
          return (await api.about([...page.selected])).candidates[0];
        }"""
    )
    assert shown.get_attribute("data-label") == together["label"] == "apple"
    assert f"{int(100 * together['probability'])} %" in shown.inner_text()
    assert together["probability"] < 1  # a mean over doubtful ones too


def test_escape_after_a_filter_gives_the_focus_back(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.locator('.tile[aria-label*=", leek, "]').first.click()
    name = focused(page)[0]
    columns = "getComputedStyle(document.querySelector('.tile')).width"
    before = page.evaluate(columns)
    page.keyboard.press("/")
    page.keyboard.type("plum/1")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.tile')]"
        ".every((tile) => tile.ariaLabel.startsWith('plum/1'))"
    )
    assert page.is_visible("#inspector")
    assert focused(page)[0].startswith("plum/1")
    assert page.evaluate(columns) == before  # the grid is as wide as it was
    page.keyboard.press("Escape")
    assert focused(page)[0] == name


def test_undo_of_many_stays_where_the_person_is(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 10")
    settled(page)
    page.click("#classes button >> nth=2")
    name = focused(page)[0]
    page.keyboard.press("u")
    wait_sent(page, 6)
    assert focused(page)[0] == name
    assert page.inner_text("#pinned-title") == "plum"


def test_the_banner_covers_no_tool_and_says_what_is_saved(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("Enter")
    unsaved = "1 decision is not saved yet"  # before it, a question for news may have failed
    page.wait_for_function(
        "(words) => document.querySelector('#trouble:not([hidden])')?.innerText.includes(words)",
        arg=unsaved,
    )
    banner = box(page, "#trouble")
    for tool in ("#undo", "#download", "#track", "#estimate", "#pinned-title"):
        assert not overlap(banner, box(page, tool)), tool
    for tool in ("#start", "#grid", "#inspector", "#toast"):  # nor what is below
        assert not overlap(banner, box(page, tool)), tool
    said = page.inner_text("#trouble")
    page.set_viewport_size({"width": 390, "height": 844})
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => ['#trouble', '#confirm'].map((each) => document.querySelector(each)"
        ".getBoundingClientRect()).reduce((banner, button) => banner.top >= button.bottom)"
    )
    assert "Start it again: this page then goes on" in said
    page.close()
    page.complaints.clear()


def test_a_missing_file_is_said_beside_the_grid_too(project, serve, visit):
    address = serve(project)
    (project.parent / "photos" / "apple" / "05.png").unlink()
    page = visit(address)
    tile = page.locator('.tile[aria-label^="apple/05.png"]')
    tile.locator(".words").wait_for()
    tile.click()
    assert "File is missing" in page.inner_text("#inspector")
    assert not page.is_visible("#picture")  # no broken picture
    page.close()
    page.complaints.clear()


CONTRAST = """(element) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colors) => {
    for (const color of colors) {
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
    }
    const linear = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
      const part = byte / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = [];
  for (let each = element; each; each = each.parentElement)
    behind.unshift(getComputedStyle(each).backgroundColor);
  const ground = paint(["white", ...behind]);
  const ink = paint([getComputedStyle(element).color]);
  return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
}"""


def test_a_tile_of_a_large_photograph_does_not_need_all_of_its_pixels(
    project, serve, visit, monkeypatch
):
    """Time is what matters; pixels are what can be counted on any machine."""
    decoded = []
    load = ImageFile.ImageFile.load

    def count_pixels(image):
        result = load(image)
        if image.format == "JPEG":
            decoded.append(image.width * image.height)
        return result

    address = serve(project)
    large = project.parent / "photos" / "plum" / "19.png"
    Image.new("RGB", (4000, 3000), "purple").save(large, "JPEG")
    monkeypatch.setattr(ImageFile.ImageFile, "load", count_pixels)
    page = visit(address, height=2600)
    page.wait_for_selector('.tile[aria-label^="plum/19.png"] img.there')
    assert decoded  # in the server, which runs in this process
    assert max(decoded) <= 4000 * 3000 / 64  # an eighth of each side


def test_keys_and_the_banner_can_be_read(project, serve, visit):
    """WCAG 2.2, 1.4.3: at least 4.5 to 1; test_accessible.py looks at the rest."""
    address = serve(project)
    for scheme in ("light", "dark"):
        page = visit(address, color_scheme=scheme)
        settled(page)
        assert page.locator("#confirm kbd").evaluate(CONTRAST) >= 4.5, scheme
        page.route("**/api/**", lambda route: route.abort())
        page.keyboard.press("Enter")
        page.wait_for_selector("#trouble:not([hidden])")
        assert page.locator("#trouble").evaluate(CONTRAST) >= 4.5, scheme
        page.close()
    page.complaints.clear()


PHONE = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}


def test_on_a_phone_fingers_can_hit_what_is_in_sight(project, serve, visit):
    page = visit(serve(project), **PHONE)
    settled(page)
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, .button, summary, .search input")]
          .filter((each) => each.checkVisibility({ visibilityProperty: true }))
          .map((each) => [each.id || each.textContent, each.getBoundingClientRect().height])
          .filter(([, height]) => height < 43.5)"""
    )
    assert small == []
    left, _, right, _ = box(page, "#several")
    assert left >= 0
    assert right <= 390
    page.tap("#several")
    assert page.get_attribute("#several", "aria-pressed") == "true"
    page.tap("#help-button")
    assert "On a phone tap" in page.inner_text("#help")  # not only keys


def test_a_phone_in_the_local_network_decides(project, serve_apart, visit):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine is in no network")
        own = probe.getsockname()[0]
    if ipaddress.ip_address(own).is_global:
        pytest.skip("this machine is in no local network")
    server = serve_apart(project, "--share")
    assert server.address.startswith(f"http://{own}:")
    page = visit(server.address, **PHONE)
    settled(page)
    before = int(page.text_content("#n-yours"))
    page.locator(".tile").first.tap(position={"x": 5, "y": 5})
    page.tap("#confirm")
    wait_sent(page, before + 1)


def test_on_a_phone_all_classes_are_in_one_list(project, serve, visit):
    with Project.open(project, write=True) as made:
        made.journal.decide(
            {f"leek/{i:02d}.png": f"leek of kind {i}" for i in range(2, 14)}, origin="import"
        )
    page = visit(serve(project), **PHONE)
    settled(page)
    toggle = page.locator("#show-classes")
    if toggle.count():
        assert toggle.inner_text().startswith("15 classes")
        toggle.tap()
    places = [each.bounding_box() for each in page.locator("#classes button").all()]
    assert len({each["x"] for each in places}) == 1  # below one another: nothing is at the side
    assert all(each["x"] >= 0 and each["x"] + each["width"] <= 390 for each in places)
    page.locator("#classes button", has_text="plum").tap()
    assert page.inner_text("#pinned-title") == "plum"
    assert not page.is_visible("#classes")
    toggle.tap()
    page.locator(".tile").first.tap(force=True, position={"x": 5, "y": 5})  # beside the list
    assert not page.is_visible("#classes")


def test_forced_colors_show_focus_selection_and_swatches(project, serve, visit):
    page = visit(serve(project), forced_colors="active")
    settled(page)
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    page.keyboard.press("Shift+ArrowRight")
    for tile, part in ((".tile.focus", "::before"), ('.tile[aria-selected="true"]', "::after")):
        style = page.evaluate(
            "([tile, part]) => { const style = getComputedStyle("
            "document.querySelector(`${tile} .frame`), part);"
            " return [style.outlineStyle, parseFloat(style.outlineWidth)]; }",
            [tile, part],
        )
        assert style[0] == "solid"
        assert style[1] >= 3
    for kept in (".swatch", ".track i", ".point"):
        assert (
            page.evaluate(f"getComputedStyle(document.querySelector('{kept}')).forcedColorAdjust")
            == "none"
        )


# Confirmations wait for `release()`.
HOLD_BACK = """() => {
  const send = window.fetch;
  const released = new Promise((resolve) => { window.release = resolve; });
  window.fetch = async (path, options) => {
    if (path.startsWith("/api/confirm")) await released;
    return send(path, options);
  };
}"""


@pytest.mark.parametrize("where", ["#classes button >> nth=1", "#candidates button >> nth=1"])
def test_the_focus_stays_in_a_list_that_an_answer_changes(project, serve, visit, where):
    page = visit(serve(project))
    settled(page)
    page.wait_for_selector("#candidates button:enabled")
    page.evaluate(HOLD_BACK)
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    page.wait_for_selector("#candidates button:enabled")
    page.locator(where).focus()
    held = page.evaluate_handle("document.activeElement")
    page.evaluate("release()")  # the answer comes while the focus is in the list
    settled(page)
    assert page.evaluate("(held) => document.activeElement === held", held)


def test_a_new_class_is_announced_on_the_way_through_the_images(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    assert page.get_attribute("#pinned-title", "aria-live") == "polite"
    titles = [page.inner_text("#pinned-title")]
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        title = page.inner_text("#pinned-title")
        if title != titles[-1]:
            titles.append(title)
    assert titles == ["apple", "leek", "plum"]
    tabs = page.locator('[role="tab"]')
    controlled = {tab.get_attribute("aria-controls") for tab in tabs.all()}
    assert controlled == {"pictures"}
    assert page.get_attribute("#pictures", "role") == "tabpanel"
