"""axe-core finds nothing in any view and dialog of the page, the report and the results."""

from pathlib import Path

import pytest

from fewlabels import load_embedded
from fewlabels.evaluation.leaderboard import make_leaderboard
from fewlabels.evaluation.leaderboard_page import write_leaderboard_page
from fewlabels.labeling.project import Project

from .test_page import wait_sent

axe = pytest.importorskip(
    "axe_playwright_python", reason="playwright is not installed: pip install 'fewlabels[test]'"
)
SOURCE = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
ROOT = Path(__file__).resolve().parents[2]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async ([where, tags]) => {
  const found = await axe.run(where, { runOnly: { type: "tag", values: tags } });
  return found.violations.map(({ id, nodes }) => [id, nodes.length,
    nodes.slice(0, 4).map((node) => `${node.target} ${node.any[0]?.message ?? node.html}`)]);
}"""


def violations(page, where="html"):
    """What axe finds in the page as it is now; pictures that fade in have done so."""
    page.wait_for_timeout(200)
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(SOURCE)  # into the window, past the page's own rules for scripts
    return page.evaluate(RUN, [where, RULES])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844), (640, 360)])
def test_every_view_and_dialog_of_the_page(project, serve, visit, scheme, size):
    with Project.open(project, write=True) as made:  # so that some images are of no class
        made.journal.decide({"plum/00.png": None, "plum/01.png": None}, origin="import")
    page = visit(
        serve(project),
        width=size[0],
        height=size[1],
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.wait_for_selector('#grid[aria-busy="false"]')
    page.wait_for_selector("#outliers:not([hidden])", state="attached")
    found = {}

    def look(name, where="html"):
        if wrong := violations(page, where):
            found[name] = wrong

    look("class")
    page.keyboard.press("Shift+ArrowRight")
    look("selection")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    wait_sent(page, 5)
    look("decided")
    page.keyboard.press("o")
    look("large")
    page.keyboard.press("z")
    look("full size")
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    page.wait_for_function("() => document.querySelector('#pinned-title').innerText[0] === 'L'")
    look("like")
    for view in ("check", "yours", "map"):
        page.evaluate("view => document.querySelector(`[data-view=${view}]`).click()", view)
        look(view)
    page.evaluate("import('/page/map.js').then(({ setLasso }) => setLasso([0, 1, 2]))")
    page.wait_for_selector('.tile[aria-selected="true"]')
    look("lasso")
    page.evaluate("document.querySelector('#outliers').click()")
    look("outliers")
    page.evaluate("document.querySelector('[data-view=class]').click()")
    page.keyboard.press("/")
    page.keyboard.type("nothing is called so")
    look("empty")
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('#exports').open = true")
    page.wait_for_selector("#exports li, #exports a")
    look("exports", "#exports")  # what lies under the open menu was looked at before
    page.evaluate("document.querySelector('#exports').open = false")
    for key, dialog in (("l", "palette"), ("r", "class-dialog"), ("?", "help")):
        page.keyboard.press(key)
        page.wait_for_selector(f"#{dialog}[open]")
        look(dialog)
        page.keyboard.press("Escape")
        page.wait_for_selector(f"#{dialog}", state="hidden")
    page.evaluate("import('/page/panels.js').then(({ ask }) => void ask('T', 'W', { yes: 'Y' }))")
    page.wait_for_selector("#ask[open]")
    look("ask")
    page.keyboard.press("Escape")
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    look("trouble")
    page.close()
    page.complaints.clear()  # the browser notes what did not arrive
    assert found == {}, found


def test_a_project_without_labels(project, serve, visit):
    with Project.open(project, write=True) as empty:
        empty.journal.decide(dict.fromkeys(empty.journal.current), origin="person")
    page = visit(serve(project), reduced_motion="reduce")
    assert (wrong := violations(page)) == [], wrong
    page.keyboard.press("l")
    assert violations(page) == []  # an empty list of classes


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report(project, browser, scheme, tmp_path):
    from fewlabels.labeling.label import label_folder

    written = tmp_path / "report.html"
    label_folder(project, output=tmp_path / "labels.csv", report=written)
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(written.as_uri())
    assert (wrong := violations(page)) == [], wrong
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_paper_page(browser, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto((ROOT / "results" / "index.html").as_uri())
    assert (wrong := violations(page)) == [], wrong
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_leaderboard(browser, tmp_path, scheme, width):
    board = make_leaderboard(load_embedded(), ["map", "ncm", "kmeans"], n_episodes=20)
    path = tmp_path / "leaderboard.html"
    path.write_text(write_leaderboard_page(board, command="fewlabels leaderboard"), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    assert (wrong := violations(page)) == [], wrong
    if width == 1280:  # nothing is cut off
        cut = "[...document.querySelectorAll('.scroll')].map((e) => e.scrollWidth - e.clientWidth)"
        assert page.evaluate(cut) == [0, 0]
    context.close()
