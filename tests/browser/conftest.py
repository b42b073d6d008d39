"""A real browser before a real server, which runs in a process of its own and can be killed."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from PIL import Image

from fewlabels.data import read_images
from fewlabels.features import FeatureSet
from fewlabels.labeling import session as session_module
from fewlabels.labeling.project import Project
from fewlabels.labeling.server import bind, make_app
from fewlabels.labeling.session import Session
from fewlabels.preprocess.power_rule import MOST_MEASUREMENTS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COLORS = {"apple": (200, 40, 40), "leek": (40, 170, 60), "plum": (90, 40, 150)}
N_PER_CLASS = 20


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'fewlabels[test]'"
    )
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


class Server:
    """`fewlabels serve` on a project."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [str(Path(sys.executable).with_name("fewlabels")), "serve", str(folder)]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://"), self.process.stderr.read()

    def kill(self) -> None:
        """As the power failing would: no last words."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=120)


@pytest.fixture
def serve_apart() -> Callable[..., Server]:
    """Servers in processes of their own."""
    servers: list[Server] = []

    def start(folder: Path, *options: str) -> Server:
        servers.append(Server(folder, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def serve(monkeypatch) -> Callable[[Path], str]:
    """Servers in threads, to save the imports; gives the address."""
    monkeypatch.setattr(session_module, "PAUSE", 0.05)  # a test does not think before it goes on
    ends: list[Callable[[], None]] = []

    def start(folder: Path, **options: str) -> str:
        session = Session(Project.open(folder, write=True), **options)
        listener = bind(0)
        listener.listen()  # visitors who come early wait
        port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(session, token="token", port=port),
                log_level="warning",
                lifespan="off",
                timeout_graceful_shutdown=20,  # seconds, for a request that is held back
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        def end() -> None:
            server.should_exit = True
            thread.join()
            listener.close()
            session.close()

        ends.append(end)
        return f"http://127.0.0.1:{port}/?token=token"

    yield start
    for end in ends:
        end()


@pytest.fixture
def project(tmp_path) -> Path:
    """Sixty pictures of three classes, two labels each; the features are noisy colours."""
    rng = np.random.default_rng(0)
    for name, color in COLORS.items():
        for i in range(N_PER_CLASS):
            pixels = np.clip(
                np.array(color) + rng.normal(scale=25, size=(24, 24, 3)), 0, 255
            ).astype(np.uint8)
            path = tmp_path / "photos" / name / f"{i:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    images = read_images(tmp_path / "photos")
    colors = np.array([np.asarray(images.read(i)).mean(axis=(0, 1)) for i in range(len(images))])
    noisy = colors + rng.uniform(0, 60, size=colors.shape)
    wide = np.tile(noisy, MOST_MEASUREMENTS)  # as features of a network
    features = FeatureSet.from_arrays(wide, [-1] * len(images), [], names=images.names)
    with Project.create(
        tmp_path / "fruit.fewlabels", features, title="fruit", root=tmp_path / "photos"
    ) as made:
        made.journal.decide(
            {f"{name}/{i:02d}.png": name for name in COLORS for i in range(2)}, origin="import"
        )
    return tmp_path / "fruit.fewlabels"


@pytest.fixture
def visit(browser):
    """Open an address in a window of its own; whatever the page complains about fails the test."""
    contexts, complaints = [], []

    def go(address: str, *, width: int = 1200, height: int = 800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(60_000)  # a busy machine
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: message.type == "error" and complaints.append(message.text)
        )
        page.complaints = complaints
        page.goto(address)
        page.wait_for_selector(".tile")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
