"""Labelling photographs without a mistake takes few keys. The whole demo: benchmarks/page.py."""

import csv
import importlib.util
import shutil
from pathlib import Path

import pytest

from fewlabels.labeling.session import open_session

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("Arla-Sour-Milk", "Arla-Standard-Milk", "Floury-Potato", "Leek")


@pytest.fixture
def groceries(tmp_path):
    """Four classes of the demo, five labels each, as a project."""
    photos = tmp_path / "grocery"
    for name in CLASSES:
        shutil.copytree(ROOT / "examples" / "grocery" / name, photos / name)
    with (ROOT / "examples" / "grocery" / "few.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["label"] in CLASSES]
    with (tmp_path / "few.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    folder = tmp_path / "grocery.fewlabels"
    open_session(folder, photos=photos, labels=tmp_path / "few.csv").close()
    return folder


def test_all_labels_right_by_a_quarter_of_the_keys(groceries, serve, visit):
    found = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    user = importlib.util.module_from_spec(found)
    found.loader.exec_module(user)
    page = visit(serve(groceries), width=1440, height=900)
    page.context.set_default_timeout(300_000)
    before = page.evaluate(user.LOOK)
    assert before["open"] == 120
    keys = user.label_all(page)
    after = page.evaluate(user.LOOK)
    assert (after["open"], after["wrong"]) == (0, 0)
    # A page with one image at a time needs a key for each. The bar of the whole demo is 150 of 600.
    assert keys.total() <= before["open"] / 4, keys
