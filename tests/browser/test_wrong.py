"""What goes wrong around the page: odd names, old windows, changed files, a jumping clock."""

from PIL import Image

from .test_page import count, focused, in_database, wait_saved, wait_sent
from .test_trust import origins, settled


def test_a_name_of_300_letters_is_refused_in_words(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    name = focused(page)[0]
    page.keyboard.press("l")
    page.keyboard.insert_text("x" * 300)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#toast').textContent.includes('at most 200 characters')"
    )
    assert count(page, "yours") == 6
    assert page.locator("#classes button").count() == 3
    page.locator(f'.tile[aria-label^="{name}, "]').click()
    page.keyboard.press("l")
    page.keyboard.insert_text("y" * 200)  # the longest that is allowed
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    wait_saved(page)
    assert in_database(project)[0][name].label == "y" * 200
    page.complaints.clear()  # the browser notes what was refused


def test_a_name_of_html_is_text(project, serve, visit):
    page = visit(serve(project))
    name, html = focused(page)[0], "<img src=x onerror=\"document.title='broken'\"> & <b>"
    page.keyboard.press("l")
    page.keyboard.insert_text(html)
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    page.wait_for_function(
        "html => [...document.querySelectorAll('#classes .name')]"
        ".some((each) => each.textContent === html)",
        arg=html,
    )
    page.keyboard.press("p")  # the map writes names too
    page.wait_for_selector('#map[aria-busy="false"]')
    page.click('[data-view="yours"]')
    assert page.locator("img[src='x']").count() == 0
    assert page.title() == "fruit · fewlabels"
    wait_saved(page)
    assert in_database(project)[0][name].label == html


def test_two_people_and_one_of_them_confirms_an_old_list(project, serve, visit):
    address = serve(project)
    one, other = visit(address), visit(address)
    settled(one)
    settled(other)
    other.context.route("**/api/state**", lambda route: route.abort())  # sees nothing new
    title = other.inner_text("#pinned-title")
    surest = one.locator(f'.tile[aria-label*=", {title}, "][aria-label*="sure"]').last
    name = surest.get_attribute("aria-label").split(", ")[0]
    surest.click()
    one.keyboard.press("n")  # none of these, says the first
    wait_sent(one, 7)
    other.keyboard.press("Shift+Enter")  # all of them are apples, says the second
    other.wait_for_function("() => Number(document.querySelector('#n-yours').textContent) > 10")
    wait_saved(one)
    decided, _ = in_database(project)
    assert name not in decided
    assert sum(each.origin == "confirmed" for each in decided.values()) > 3
    other.close()
    other.complaints.clear()


def test_a_window_from_before_images_were_deleted_decides_nothing(project, serve_apart, visit):
    server = serve_apart(project)
    page = visit(server.address)
    settled(page)
    page.context.route("**/api/state**", lambda route: route.abort())  # the next key comes first
    server.kill()
    (project.parent / "photos" / "apple" / "00.png").unlink()  # all numbers become others
    serve_apart(project)
    page.evaluate("() => { window.before = true }")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !window.before && document.querySelector('.tile')")  # it reloads
    assert origins(project) == []
    said = page.wait_for_function("() => document.querySelector('#toast').textContent").json_value()
    assert said == ("The images of the project changed. One decision was not saved: decide again.")
    page.context.unroute_all()
    settled(page)
    name, label, _ = focused(page)
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:enabled")
    wait_saved(page)
    assert origins(project) == ["person"]
    assert in_database(project)[0][name].label == label
    page.close()
    page.complaints.clear()  # the browser notes what was refused


def test_a_photograph_that_was_replaced_is_shown_as_it_is(project, serve, visit):
    address = serve(project)
    page = visit(address)
    page.wait_for_selector(".tile img.there")
    name = focused(page)[0]
    Image.new("RGB", (60, 30), "white").save(project.parent / "photos" / name)
    page.reload()  # the browser knows the old picture
    page.wait_for_selector(".tile")
    tile = page.locator(f'.tile[aria-label^="{name}, "] img.there')
    tile.wait_for()
    assert tile.evaluate("(image) => image.naturalWidth / image.naturalHeight") == 2
    assert count(page, "yours") == 6


def test_a_clock_that_jumps(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.clock.install()
    for n, time in ((7, "2001-01-01T00:00:00Z"), (8, "2040-01-01T00:00:00Z")):
        page.clock.set_system_time(time)
        page.keyboard.press("ArrowRight")
        page.clock.run_for(1000)
        page.wait_for_selector('#grid[aria-busy="false"]')
        page.keyboard.press("Enter")
        wait_sent(page, n)
        for _ in range(2000):
            page.clock.run_for(500)  # the page asks for the thorough answer by this clock
            if page.get_attribute("#grid", "aria-busy") == "false":
                break
            page.wait_for_timeout(30)
    wait_saved(page)
    assert origins(project) == ["person", "person"]


def test_whatever_is_asked_of_a_server_that_does_not_answer_the_page_says_so(project, serve, visit):
    page = visit(serve(project))
    settled(page)
    page.clock.install()  # the page does not ask by itself
    page.route("**/api/**", lambda route: route.abort())
    for ask in (
        lambda: page.keyboard.press("m"),
        lambda: page.keyboard.press("p"),
        lambda: page.click("#exports summary"),
    ):
        page.evaluate("document.querySelector('#trouble').hidden = true")
        ask()
        page.wait_for_selector("#trouble:not([hidden])")
        assert "does not answer" in page.inner_text("#trouble")
        page.keyboard.press("Escape")
    assert all("Failed to load resource" in each for each in page.complaints)  # no other error
    page.close()
    page.complaints.clear()
