"""The report in a real browser: pictures on the map, printed and narrow."""

import pytest

from fewlabels.labeling.label import label_folder


@pytest.fixture
def report(project, browser, tmp_path):
    """The page of a report of the project."""
    written = tmp_path / "report.html"
    label_folder(project, output=tmp_path / "labels.csv", report=written, command="fewlabels label")
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(written.as_uri())
    yield page
    context.close()


def test_a_point_of_the_map_shows_its_picture(report):
    point = report.locator(".map b").first
    look = """(point) => {
      const {content, backgroundImage, width} = getComputedStyle(point, "::after");
      return [content, backgroundImage.slice(0, 21), width];
    }"""
    assert point.evaluate(look)[0] == "none"
    point.hover(force=True)
    assert point.evaluate(look) == ['""', 'url("data:image/webp;', "72px"]


def test_it_fits_a_phone_and_paper(report):
    assert report.evaluate("document.documentElement.scrollWidth") == 390
    assert report.locator(".map b").count() == report.evaluate(
        "Number(document.querySelector('.facts b').textContent)"
    )
    assert report.pdf(format="A4").startswith(b"%PDF-")
