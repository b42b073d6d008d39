"""How many keys it takes to label the demo's 700 photographs without a mistake on the real page.

    python benchmarks/page.py [--photos examples/grocery] [--labels examples/grocery/few.csv]

A person who knows every label, the sub-folder, goes through the classes by keyboard alone: labels
wrong pictures among the sure ones by the digit of their class, confirms the sure ones together, and
answers the doubtful ones one by one. Every key counts, arrows too. A page that shows one image at a
time needs at least one key per image. Needs Playwright and Chromium.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

RESULTS = Path(__file__).parent / "results"
ASKED_OR_SENT = """() => document.querySelector("#ask").open ? "asked"
  : document.querySelector("#grid").getAttribute("aria-busy") === "true" && "sent" """
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


MOST_KEYS = 1000  # a person who needs more is lost
READ = 450  # milliseconds to read a label before it is confirmed; the page refuses haste
MANY = 2  # right, doubtful pictures above which they are confirmed together


def truth(name: str) -> str:
    """The label of a photograph, by its path."""
    return name.split("/")[0]


def label_all(page: Page) -> Counter[str]:
    """Label every image right, by keys alone; how often each key was pressed."""
    keys: Counter[str] = Counter()
    while step(page, keys):
        if keys.total() > MOST_KEYS:
            raise RuntimeError(f"{keys.total()} keys, and it is not done: {keys.most_common()}")
    return keys


def step(page: Page, keys: Counter[str]) -> bool:
    """Press what the person would press next; False when all is done."""
    page.wait_for_selector('#grid[aria-busy="false"]')
    page.wait_for_selector("#candidates[aria-busy=false]")
    seen: dict[str, Any] = page.evaluate(LOOK)
    if not seen["open"]:
        return False
    title, focused, names = page.inner_text("#pinned-title"), seen["focused"], seen["names"]
    section = next(each for each in seen["sections"] if each["title"] == title)
    is_open, sure = section["open"], section["sure"]
    wrong = [item for item in is_open if truth(names[item]) != title]

    def press(*pressed: str) -> bool:
        for key in pressed:
            keys[key] += 1
            page.keyboard.press(key)
        page.wait_for_timeout(60)
        return True

    def place(item: int) -> tuple[int, int]:
        return divmod(section["items"].index(item), seen["columns"])

    def distance(item: int) -> int:
        return sum(abs(a - b) for a, b in zip(place(item), place(focused), strict=True))

    def go_or(targets: list[int], act: Callable[[], bool]) -> bool:
        """Act on the image in focus if it is a target, or move towards the nearest one."""
        if focused in targets:
            return act()
        (row, column), (to_row, to_column) = place(focused), place(min(targets, key=distance))
        if row != to_row:
            return press("ArrowDown" if to_row > row else "ArrowUp")
        return press("ArrowRight" if to_column > column else "ArrowLeft")

    def correct() -> bool:
        label, offered = truth(names[focused]), page.evaluate(OFFERED)
        if label in offered:
            return press(str(1 + offered.index(label)))
        return press("l", *label, "Enter")

    def confirm() -> bool:
        page.wait_for_timeout(READ)
        return press("Enter")

    if any(item in sure for item in wrong):
        return go_or(wrong, correct)
    if sure or not is_open:  # confirm the sure ones; or the next class
        return press("Shift+Enter")
    if len(is_open) - len(wrong) <= MANY:
        return go_or(is_open, correct if focused in wrong else confirm)
    if wrong:
        return go_or(wrong, correct)
    press("Shift+Enter")
    # An answer that came just before may have made some of them sure: no question then.
    if page.wait_for_function(ASKED_OR_SENT).json_value() == "asked":
        press("y")
    return True


def main() -> None:
    """Measure and report."""
    options = argparse.ArgumentParser()
    options.add_argument("--photos", type=Path, default=Path("examples/grocery"))
    options.add_argument("--labels", type=Path, default=Path("examples/grocery/few.csv"))
    asked = options.parse_args()
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
            page.set_default_timeout(120_000)  # a busy machine
            page.goto(server.stdout.readline().strip())
            page.wait_for_selector(".tile")
            first = page.evaluate(LOOK)
            keys = label_all(page)
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
