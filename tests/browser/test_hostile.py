"""A full disk before a person at work, and scripts in the names of files and classes."""

import resource

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import read_images
from fewlabels.features import FeatureSet
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.project import Project

from .test_page import count, download, focused, in_database, wait_saved, wait_sent
from .test_trust import origins, settled

SCRIPT = "globalThis.broken=true;document.title='broken'"
NAMES = [  # of files and of classes: HTML, attributes, templates, addresses, directions of writing
    f'<img src=x onerror="{SCRIPT}">',
    f"\"><svg onload={SCRIPT}>'",
    f"' onmouseover='{SCRIPT}' x='",
    "${globalThis.broken=true}{{7*7}}",
    f"javascript:{SCRIPT}",
    "&lt;b&gt;\u202etxt.exe%3Cscript%3E#?",
]


def test_a_full_disk_is_said_and_work_goes_on_when_there_is_room(project, serve_apart, visit):
    server = serve_apart(project)
    page = visit(server.address)
    settled(page)
    name, label, _ = focused(page)
    limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100, limit[1]))  # as a full disk
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#toast').textContent.includes('was not kept. Free some')"
    )
    settled(page)
    assert count(page, "yours") == 6
    assert origins(project) == []
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
    page.locator(f'.tile[aria-label^="{name}, "]').click()
    page.keyboard.press("Enter")
    wait_sent(page, 7)
    wait_saved(page)
    assert origins(project) == ["person"]
    assert in_database(project)[0][name].label == label
    page.complaints.clear()  # the browser notes what was refused


@pytest.fixture
def hostile(tmp_path):
    """A project of five pictures per class, all of whose names are meant to run something."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    labels = {}
    for number, name in enumerate(NAMES):
        for i in range(5):
            pixels = np.clip(40 * number + rng.normal(scale=9, size=(24, 24, 3)), 0, 255)
            path = tmp_path / "photos" / f"{i}{name}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            if i < 2:
                labels[path] = name
    images = read_images(tmp_path / "photos")
    items = {images.path(i): name for i, name in enumerate(images.names)}
    rows = [np.asarray(images.read(i)).mean(axis=(0, 1)) for i in range(len(images))]
    features = FeatureSet.from_arrays(np.array(rows), [-1] * len(rows), [], names=images.names)
    folder = tmp_path / f"{NAMES[0]}.fewlabels"
    how = {"title": NAMES[0], "root": tmp_path / "photos"}
    how["labels"] = {items[path]: label for path, label in labels.items()}
    Project.create(folder, features, **how).close()
    return folder


def is_untouched(page):
    """No script ran, and no element was made of a name."""
    return page.evaluate("""() => !globalThis.broken && document.title !== 'broken'
      && !document.querySelector("img[src='x'], svg[onload], [onmouseover], [onerror]")
      && ![...document.querySelectorAll("a[href]")].some((a) => a.protocol === "javascript:")""")


def test_names_of_files_and_classes_run_nothing_on_the_page(hostile, serve, visit):
    page = visit(serve(hostile))
    settled(page)
    shown = page.locator("#classes .name").all_text_contents()
    assert {name for name in NAMES if name in shown} == set(NAMES)
    for view in ("yours", "all", "doubtful", "suggested"):
        if page.locator(f'[data-view="{view}"]').count():
            page.click(f'[data-view="{view}"]')
            settled(page)
    for tile in page.locator(".tile").all()[:6]:
        tile.hover()
        tile.click()
        assert is_untouched(page)
    page.keyboard.press("p")  # the map writes names too
    page.wait_for_selector('#map[aria-busy="false"]')
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:enabled")
    page.hover("#undo")
    assert is_untouched(page)
    wait_saved(page)
    found = download(page)
    assert len(found) == 5 * len(NAMES)
    assert {row["label"] for row in found.values()} <= set(NAMES)


def test_names_of_files_and_classes_run_nothing_in_the_report(hostile, browser, tmp_path):
    written = tmp_path / "report.html"
    output = tmp_path / "labels.csv"
    label_folder(hostile, output=output, report=written, command=f"fewlabels label {NAMES[0]}")
    context = browser.new_context()
    page = context.new_page()
    page.goto(written.as_uri())
    text = page.inner_text("body")
    assert sum(name in text for name in NAMES) == len(NAMES)
    for point in page.locator(".map b").all()[:6]:
        point.hover(force=True)
    assert is_untouched(page)
    context.close()
