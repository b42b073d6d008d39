"""The map of the features: lasso, wheel, hover, click and keys."""

from .test_page import count, focused, in_database, press_digit_of, wait_saved, wait_sent

# Where an image is on the screen, in pixels of the window.
PLACES = """async () => {
  const { page } = await import("/page/shared.js");
  const { placeOnScreen } = await import("/page/map.js");
  return Object.fromEntries(page.project.names.map((name, item) => [name, placeOnScreen(item)]));
}"""
CHOSEN = """async () => {
  const { page } = await import("/page/shared.js");
  return [...page.selected].map((item) => page.project.names[item]).sort();
}"""


def open_map(page):
    page.wait_for_selector('#grid[aria-busy="false"]')
    assert page.is_visible('[data-view="map"]')
    page.keyboard.press("p")
    page.wait_for_selector('#map[aria-busy="false"]')
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate(PLACES)


def spread(places, names):
    xs, ys = zip(*(places[name] for name in names), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def draw_around(page, left, top, right, bottom):
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in [*corners[1:], corners[0]]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


def test_a_lasso_selects_and_a_digit_labels_all(project, serve, visit):
    page = visit(serve(project))
    places = open_map(page)
    left, top, right, bottom = spread(places, [name for name in places if name[:4] == "leek"])
    inside = sorted(
        name
        for name, (x, y) in places.items()
        if left - 8 < x < right + 8 and top - 8 < y < bottom + 8
    )
    assert 15 < len(inside) < 45  # classes lie together
    draw_around(page, left - 8, top - 8, right + 8, bottom + 8)
    assert page.evaluate(CHOSEN) == inside
    assert page.inner_text("#item-name") == f"{len(inside)} images selected"
    assert page.locator("#grid").bounding_box()["height"] > 100  # their pictures are below
    press_digit_of(page, "leek")
    wait_saved(page)
    decided, _ = in_database(project)
    assert {name for name, each in decided.items() if each.origin == "person"} == set(inside)
    assert {decided[name].label for name in inside} == {"leek"}
    page.keyboard.press("Escape")  # all again
    page.wait_for_selector("body.on-whole-map")


def test_hover_shows_the_picture_and_a_click_focuses_it(project, serve, visit):
    page = visit(serve(project))
    places = open_map(page)
    given = in_database(project)[0]
    name = max(places.keys() - given, key=lambda each: places[each][0])
    page.mouse.move(*places[name])
    page.wait_for_function("() => document.querySelector('#map-hover img').naturalWidth > 0")
    assert page.inner_text("#map-hover").startswith(name)
    page.mouse.click(*places[name])
    assert page.inner_text("#item-name") == name
    assert count(page, "yours") == 6  # a click decides nothing
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    wait_saved(page)
    assert in_database(project)[0][name].origin == "person"


def test_the_wheel_zooms_where_it_is_and_all_comes_back(project, serve, visit):
    page = visit(serve(project))
    before = open_map(page)
    name = min(before, key=lambda each: before[each][0])
    x, y = before[name]
    page.mouse.move(x, y)
    page.mouse.wheel(0, -900)
    page.wait_for_function(
        "async ([item, x]) => (await import('/page/map.js')).placeOnScreen(item)[0] > x + 50",
        arg=[list(before).index(max(before, key=lambda each: before[each][0])), x],
    )
    after = page.evaluate(PLACES)
    assert abs(after[name][0] - x) < 3
    assert abs(after[name][1] - y) < 3
    left, _, right, _ = spread(before, before)
    wider = spread(after, after)
    assert wider[2] - wider[0] > 2 * (right - left)
    page.click("#map-fit")
    assert page.evaluate(PLACES) == before


def test_keys_go_from_point_to_point_and_reach_every_class(project, serve, visit):
    page = visit(serve(project))
    places = open_map(page)
    assert page.evaluate("document.activeElement.id") == "map-canvas"
    seen = set()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        for _ in range(60):
            before = page.inner_text("#item-name")
            page.keyboard.press(key)
            after = page.inner_text("#item-name")
            if after == before:
                break
            axis, sign = {"Right": (0, 1), "Down": (1, 1), "Left": (0, -1), "Up": (1, -1)}[key[5:]]
            assert sign * (places[after][axis] - places[before][axis]) > 0
            assert after in page.inner_text("#map-said") or page.inner_text("#map-said") == ""
            seen.add(after)
    assert len(seen) > 10
    page.keyboard.press("Shift+ArrowLeft")
    assert len(page.evaluate(CHOSEN)) == 2
    page.keyboard.press("Escape")
    page.click("#classes button >> nth=1")  # a class narrows the map, without a lasso
    assert focused(page)[1] == "leek"
    assert page.evaluate(CHOSEN) == []
    page.keyboard.press("p")
    assert page.get_attribute('[data-view="class"]', "aria-selected") == "true"


def test_the_picture_in_focus_stays_in_focus_on_the_map_and_back(project, serve, visit):
    page = visit(serve(project))
    page.wait_for_selector('#grid[aria-busy="false"]')
    page.click("#classes button >> nth=2")
    page.keyboard.press("ArrowRight")
    name = page.inner_text("#item-name")
    assert name.startswith("plum/")
    open_map(page)
    assert page.inner_text("#item-name") == name
    assert page.inner_text("#pinned-title") == "plum"
    assert not page.is_visible("#above")  # no part of a list that is not shown
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    name = page.inner_text("#item-name")
    page.keyboard.press("p")
    assert page.inner_text("#item-name") == name
    assert page.locator(".tile.focus").is_visible()


def test_light_and_dark_maps_have_colors_of_their_own(project, serve, visit):
    address = serve(project)
    corner = """() => {
      const canvas = document.querySelector("#map-canvas");
      const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      let drawn = 0;
      for (let i = 3; i < all.length; i += 4) drawn += all[i] > 0;
      return [drawn, canvas.width * canvas.height];
    }"""
    for scheme in ("light", "dark"):
        page = visit(address, color_scheme=scheme)
        open_map(page)
        drawn, pixels = page.evaluate(corner)
        assert 0 < drawn < pixels / 4  # points on an empty ground, which is the page's
