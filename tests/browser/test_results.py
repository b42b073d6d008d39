"""The page of the paper's results in a real browser: light, dark, narrow, without a server."""

from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "results" / "index.html"
LEAST_CONTRAST = 4.5  # of text, WCAG 2.2 AA
CONTRASTS = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(parse(getComputedStyle(document.body).backgroundColor));
  const shown = [...document.querySelectorAll("p, li, td, th, a, h1, h2, summary, small, text")];
  return shown.filter((each) => each.textContent.trim()).map((each) => {
    const style = getComputedStyle(each);
    const ink = light(parse(each.tagName === "text" ? style.fill : style.color));
    const [low, high] = [ink, ground].sort((a, b) => a - b);
    return [(high + 0.05) / (low + 0.05), each.textContent.trim().slice(0, 40)];
  });
}"""


@pytest.fixture
def visit(browser):
    """Opens the page as a file."""
    contexts = []

    def start(*, width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.goto(PAGE.as_uri())
        return page

    yield start
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(visit, scheme):
    page = visit(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 1000
    assert [each for each in found if each[0] < LEAST_CONTRAST] == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


@pytest.mark.parametrize("width", [390, 844, 1280, 2000])
def test_only_tables_and_pictures_scroll_sideways(visit, width):
    page = visit(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("window.scrollTo(0, 6000)")
    box = page.locator("nav").bounding_box()  # the list of contents stays in sight
    assert (box["x"], box["y"]) == (0, 0)


def test_text_of_pictures_is_text(visit):
    page = visit()
    words = page.locator("svg text").all_text_contents()
    assert len(words) > 300
    assert {"Sinkhorn mapping", "PT+MAP (WRN)", "1-shot accuracy (%)"} <= {
        word.strip() for word in words
    }


def test_a_link_of_the_contents_shows_its_heading(visit):
    page = visit(width=390, height=844)
    page.click('nav a[href="#table5"]')
    box = page.locator("#table5 h2").bounding_box()
    below = page.locator("nav").bounding_box()["height"]
    assert below <= box["y"] < 844


def test_tables_without_a_number_of_ours_are_folded(visit):
    page = visit()
    for name in ("table3", "table4", "table7"):
        assert not page.is_visible(f"#{name} table")
        page.click(f"#{name} summary >> nth=0")
        assert page.is_visible(f"#{name} table")
    assert page.is_visible("#table2 table")
    assert page.is_visible("#table5 table")
