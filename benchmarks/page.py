"""How many keys it takes to label the demo's 700 photographs without a mistake on the real page.

    python benchmarks/page.py [--photos examples/grocery] [--labels examples/grocery/few.csv]

A person who knows every label, the sub-folder, goes through the classes by keyboard alone: moves to
each wrong picture, presses the digit of its class, and confirms the rest. A page that shows one
image at a time needs at least one key per image. Needs Playwright and Chromium.
Writes benchmarks/results/page.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

RESULTS = Path(__file__).parent / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOOK = """async () => {
  const { page } = await import('/page/shared.js');
  const { names } = page.project;
  const { labels, classes, marks } = page.state;
  return {
    focused: page.focused,
    names,
    columns: page.layout.columns,
    open: marks.filter((mark) => mark === '0').length,
    wrong: names.filter((name, i) => name.split('/')[0] !== classes[labels[i]]).length,
    sections: page.layout.sections.map(
      ({ title, items, open, sure }) => ({ title, items, open, sure }),
    ),
  };
}"""
OFFERED = "[...document.querySelectorAll('#candidates button')].map((each) => each.dataset.label)"


def step(page: Page, keys: Counter[str]) -> bool:
    """Press what the person would press next; False when all is done."""
    page.wait_for_selector('#grid[aria-busy="false"]')
    page.wait_for_selector("#candidates[aria-busy=false]")
    seen: dict[str, Any] = page.evaluate(LOOK)
    if not seen["open"]:
        return False
    title = page.inner_text("#pinned-title")
    section = next(each for each in seen["sections"] if each["title"] == title)
    items = section["items"]

    def press(key: str) -> None:
        keys[key] += 1
        page.keyboard.press(key)

    wrong = [item for item in section["open"] if seen["names"][item].split("/")[0] != title]
    if not wrong:
        only = section["open"] == [seen["focused"]]
        press("Enter" if only and not section["sure"] else "Shift+Enter")
        if page.is_visible("#ask"):
            press("y")
    elif seen["focused"] == wrong[0]:
        label, offered = seen["names"][wrong[0]].split("/")[0], page.evaluate(OFFERED)
        if label in offered:
            press(str(1 + offered.index(label)))
        else:
            for key in ("l", *label[:5], "Enter"):
                press(key)
    else:
        (row, column), (to_row, to_column) = (
            divmod(items.index(item), seen["columns"]) for item in (seen["focused"], wrong[0])
        )
        if row != to_row:
            press("ArrowDown" if to_row > row else "ArrowUp")
        else:
            press("ArrowRight" if to_column > column else "ArrowLeft")
    page.wait_for_timeout(60)
    return True


def main() -> None:
    """Measure and report."""
    options = argparse.ArgumentParser()
    options.add_argument("--photos", type=Path, default=Path("examples/grocery"))
    options.add_argument("--labels", type=Path, default=Path("examples/grocery/few.csv"))
    asked = options.parse_args()
    keys: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [
            *(str(Path(sys.executable).with_name("fewlabels")), "serve", f"{folder}/p.fewlabels"),
            *("--photos", str(asked.photos), "--labels", str(asked.labels)),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-background-networking"]
        )
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(server.stdout.readline().strip())
            page.wait_for_selector(".tile")
            first = page.evaluate(LOOK)
            while step(page, keys):
                pass
            last = page.evaluate(LOOK)
        finally:
            browser.close()
            server.terminate()
            server.wait()
    found = {
        "images": len(first["names"]),
        "without_label": first["open"],
        "wrong_at_first": first["wrong"],
        "wrong_at_last": last["wrong"],
        "keys": keys.total(),
        "by_key": dict(keys.most_common()),
    }
    print(json.dumps(found, indent=2))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "page.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
