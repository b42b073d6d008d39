"""The server: who may ask what, and what comes back."""

import csv
import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image
from pyarrow import parquet

from fewlabels.data import read_images
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling import downloads
from fewlabels.labeling.exports import format_names
from fewlabels.labeling.project import Project
from fewlabels.labeling.server import FILES, HOST, PAGE, bind, find_address, make_app
from fewlabels.labeling.session import Session

TOKEN = "a-token"
HEADERS = {"X-Fewlabels-Token": TOKEN}


@pytest.fixture
def folder(photos, tmp_path):
    """A project of pictures whose features are their colours."""
    images = read_images(photos)
    colors = [
        [
            sum(channel) + 1
            for channel in zip(*images.read(i).resize((4, 4)).get_flattened_data(), strict=True)
        ]
        for i in range(len(images))
    ]
    features = FeatureSet.from_arrays(colors, [-1] * len(images), [], names=images.names)
    with Project.create(
        tmp_path / "project", features, title="Früchte <b>", root=photos
    ) as project:
        project.journal.decide(
            {f"{name}-{i}.png": name for name in ("apple", "leek", "plum") for i in range(2)},
            origin="import",
        )
    return tmp_path / "project"


@contextmanager
def visiting(folder, host=HOST):
    """A client on this machine that does not know the token, before a real server."""
    session = Session(Project.open(folder, write=True))
    listener = bind(0)
    port = listener.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(session, token=TOKEN, port=port, host=host),
            log_level="warning",
            lifespan="off",
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as client:
        yield client
    server.should_exit = True
    thread.join()
    listener.close()
    session.close()


@pytest.fixture
def visitor(folder):
    with visiting(folder) as client:
        yield client


@pytest.fixture
def client(visitor):
    assert visitor.get(f"/?token={TOKEN}").status_code == 303
    return visitor


def test_who_decided_is_told_by_a_header(client, folder):
    name = {"X-Fewlabels-Person": "Zo%C3%AB%20%3Cb%3E"}
    body = {"items": [3], "label": "leek"}
    assert client.post("/api/decide", json=body, headers=HEADERS | name).status_code == 200
    about = client.post("/api/about", json={"items": [3]}, headers=HEADERS).json()
    assert about["history"][-1]["person"] == "Zoë <b>"
    state = client.get("/api/state").json()
    assert state["undo"]["person"] == "Zoë <b>"
    for wrong in ("x" * 61, "a%0Ab"):
        refused = {**HEADERS, "X-Fewlabels-Person": wrong}
        answer = client.post("/api/decide", json=body, headers=refused)
        assert (answer.status_code, "person must be" in answer.json()["error"]) == (422, True)


READ = [
    "/",
    "/page/app.js",
    "/api/project",
    "/api/state",
    "/api/map",
    "/thumbnail/0",
    "/picture/0",
    "/labels.csv",
]
CHANGE = [
    ("/api/decide", {"items": [0], "label": "leek"}),
    ("/api/confirm", {"shown": {"leek": [0]}}),
    ("/api/undo", {}),
]


def test_reading_needs_the_cookie_and_the_own_address(visitor):
    port = visitor.base_url.port
    for path in READ:
        assert visitor.get(path).status_code == 403
        assert visitor.get(path, params={"token": "guess"}).status_code == 403
        assert visitor.get(path, headers=HEADERS).status_code == 403
    visitor.get(f"/?token={TOKEN}")
    for path in READ:
        assert visitor.get(path).status_code == 200
        for host in (
            ()
            if path not in ("/", "/labels.csv")
            else ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", "")
        ):
            assert visitor.get(path, headers={"Host": host}).status_code == 421
        assert visitor.get(path, headers={"Host": f"localhost:{port}"}).status_code == 200


def test_changing_needs_the_token_in_a_header(client):
    for path, body in CHANGE:
        assert client.post(path, json=body).status_code == 403  # the cookie alone will not do
        assert (
            client.post(path, json=body, headers={"X-Fewlabels-Token": "guess"}).status_code == 403
        )
        assert (
            client.post(path, json=body, headers=HEADERS | {"Host": "evil.example"}).status_code
            == 421
        )
    assert client.get("/api/state").json()["marks"].count("1") == 0
    for path, body in CHANGE:
        assert client.post(path, json=body, headers=HEADERS).status_code == 200


def test_uploads_and_odd_requests_are_refused(client):
    assert client.post("/api/decide", files={"file": b"x"}, headers=HEADERS).status_code == 415
    assert (
        client.post(
            "/api/decide", content=b"x" * 10, headers=HEADERS | {"Content-Type": "text/plain"}
        ).status_code
        == 415
    )
    big = json.dumps({"items": list(range(300_000)), "label": "x"}).encode()
    assert (
        client.post(
            "/api/decide", content=big, headers=HEADERS | {"Content-Type": "application/json"}
        ).status_code
        == 413
    )
    stream = HEADERS | {"Content-Type": "application/json"}
    assert (
        client.post("/api/decide", content=iter([b"{}"]), headers=stream).status_code == 413
    )  # says no length
    assert client.put("/api/decide", json={}, headers=HEADERS).status_code == 405
    assert client.post("/labels.csv", json={}, headers=HEADERS).status_code == 405
    assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 404
    for body in (
        {},
        {"items": ["0"], "label": "x"},
        {"items": [0], "label": 3},
        {"items": [0], "label": "x", "path": "/etc"},
    ):
        assert client.post("/api/decide", json=body, headers=HEADERS).status_code == 422
    assert (
        "below 24"
        in client.post("/api/decide", json={"items": [99], "label": "x"}, headers=HEADERS).json()[
            "error"
        ]
    )
    assert client.get("/api/state").json()["marks"].count("1") == 0


def test_a_page_of_other_images_changes_nothing(client):
    key = client.get("/api/project").json()["key"]
    for path, body in CHANGE:
        stale = client.post(f"{path}?key=0123456789abcdef", json=body, headers=HEADERS)
        assert stale.status_code == 409
        assert "Reload" in stale.json()["error"]
    assert client.get("/api/state").json()["marks"].count("1") == 0
    for path, body in CHANGE:
        assert client.post(f"{path}?key={key}", json=body, headers=HEADERS).status_code == 200


OUTSIDE = [
    "/thumbnail/24",
    "/thumbnail/-1",
    "/thumbnail/..%2fproject.sqlite",
    "/page/..%2fserver.py",
    "/page/index.html",
    "/picture/x",
]


def test_nothing_outside_can_be_read(client, photos, tmp_path):
    for path in OUTSIDE:
        assert client.get(path).status_code in (404, 422)
    # a link that was put in the place of a picture is not followed
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    (photos / "apple-0.png").unlink()
    (photos / "apple-0.png").symlink_to(tmp_path / "secret.png")
    assert client.get("/thumbnail/0").status_code == 404
    assert client.get("/picture/0").status_code == 404


def test_headers_keep_other_pages_out(client):
    for path in READ:
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert not [name for name in headers if name.startswith("access-control")]
    answer = client.get(f"/?token={TOKEN}")
    assert {"httponly", "samesite=strict"} <= set(answer.headers["set-cookie"].lower().split("; "))
    assert answer.headers["location"] == "/"


def test_the_page_is_whole_and_asks_for_nothing_elsewhere(client):
    page = client.get("/").text
    assert TOKEN in page
    named = set(re.findall(r'(?:src|href)="/page/([^"]+)"', page)) | set(
        re.findall(r'from "\./([^"]+)"', "".join((PAGE / f).read_text() for f in FILES))
    )
    assert named <= set(FILES)
    for name in FILES:
        answer = client.get(f"/page/{name}")
        assert answer.status_code == 200
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:", page)


def test_thumbnails_are_small_kept_and_tagged(client, folder):
    first = client.get("/thumbnail/3")
    assert Image.open(io.BytesIO(first.content)).size == (224, 224)
    assert first.headers["content-type"] == "image/webp"
    assert len(list(folder.glob("thumbnails/*/*"))) == 1
    assert client.get("/thumbnail/3").content == first.content
    assert (
        client.get("/thumbnail/3", headers={"If-None-Match": first.headers["etag"]}).status_code
        == 304
    )
    assert first.headers["cache-control"] == "private, no-cache"  # asked for again each time
    assert Image.open(io.BytesIO(client.get("/picture/3").content)).format == "JPEG"


def test_a_wide_picture_is_whole_and_a_very_wide_one_is_cut(client, photos):
    for name, size, expected in (
        ("apple-0.png", (90, 60), (336, 224)),
        ("apple-1.png", (1000, 100), (672, 224)),
    ):
        Image.new("RGB", size, "red").save(photos / name)
        found = client.get(f"/thumbnail/{name[6]}").content
        assert Image.open(io.BytesIO(found)).size == expected
    assert Image.open(io.BytesIO(client.get("/picture/0").content)).size == (90, 60)
    Image.new("RGB", (2000, 30), "red").save(photos / "apple-2.png")
    assert Image.open(io.BytesIO(client.get("/picture/2").content)).width == 1280
    assert Image.open(io.BytesIO(client.get("/picture/2?full=true").content)).width == 2000


def test_decide_confirm_undo_and_the_csv(client):
    state = client.post(
        "/api/decide", json={"items": [2, 3], "label": "Äpfel"}, headers=HEADERS
    ).json()
    assert state["classes"][-1] == "Äpfel"
    assert state["marks"][2:4] == "11"
    state = client.post("/api/confirm", json={"shown": {"plum": [20]}}, headers=HEADERS).json()
    assert state["classes"][state["labels"][20]] == "plum"
    rows = {
        row["path"]: row
        for row in csv.DictReader(
            io.StringIO(client.get("/labels.csv").content.decode("utf-8-sig"))
        )
    }
    assert (rows["apple-2.png"]["label"], rows["apple-2.png"]["origin"]) == ("Äpfel", "person")
    assert len(rows) == 24
    undone = client.post("/api/undo", json={}, headers=HEADERS).json()
    assert (undone["n_undone"], undone["undone"]) == (1, 20)
    about = client.post("/api/about", json={"items": [2]}, headers=HEADERS).json()
    assert about["candidates"][0] == {"label": "Äpfel", "probability": 1.0}
    assert [entry["label"] for entry in about["history"]] == ["Äpfel"]
    version = client.get("/api/state").json()["version"]
    assert client.get(f"/api/state?since={version}").status_code in (
        200,
        204,
    )  # 200 if the thorough answer came in between
    strict = client.get("/labels.csv?abstain=1.0").text
    assert sum(not row["label"] for row in csv.DictReader(io.StringIO(strict))) > 0


def test_the_map_has_a_place_for_every_item(client):
    found = client.get("/api/map").json()
    assert len(found["across"]) == len(found["down"]) == 24
    every = found["across"] + found["down"]
    assert 0 <= min(every) < max(every) <= found["side"]
    assert client.get("/api/map").json() == found


def test_a_port_that_is_taken():
    with bind(0) as listener:
        listener.listen()
        with pytest.raises(InputError, match="cannot be used"):
            bind(listener.getsockname()[1])


def test_other_formats(client):
    state = client.post("/api/decide", json={"items": [2], "label": "Äpfel"}, headers=HEADERS)
    assert state.status_code == 200
    rows = list(csv.DictReader(io.StringIO(client.get("/labels.csv").content.decode("utf-8-sig"))))
    tasks = json.loads(client.get("/export/label-studio").content)
    found = [task.get("predictions") or task["annotations"] for task in tasks]
    assert [each[0]["result"][0]["value"]["choices"][0] for each in found] == [
        row["label"] for row in rows
    ]
    assert "annotations" in tasks[2]
    table = parquet.read_table(io.BytesIO(client.get("/export/parquet").content))
    assert table["label"].to_pylist() == [row["label"] for row in rows]
    assert client.get("/labels.exe").status_code == 404
    refused = client.get("/export/exe")
    assert refused.status_code == 422
    assert "got 'exe'" in refused.json()["error"]


def test_files_that_are_gone_are_not_confirmed_with_others(client, photos):
    names = client.get("/api/project").json()["names"]
    (photos / names[20]).unlink()
    answer = client.post("/api/confirm", json={"shown": {"plum": [20, 21, 22]}}, headers=HEADERS)
    assert answer.json()["missing"] == [20]
    marks = client.get("/api/state").json()["marks"]
    assert marks[20:23] == "033"


def test_all_of_a_hundred_thousand_items_can_be_confirmed_at_once(tmp_path):
    """The page sends them in one request, in the order of the screen."""
    n = 100_000
    vectors = np.abs(np.random.default_rng(0).normal(size=(n, 2))).astype(np.float32)
    features = FeatureSet.from_arrays(vectors, [-1] * n, [])
    Project.create(tmp_path / "project", features, title="many").close()
    body = json.dumps({"shown": {"a class": list(range(n))[::-1]}}).encode()
    assert len(body) > 600_000
    with visiting(tmp_path / "project") as client:
        answer = client.post(
            "/api/confirm", content=body, headers=HEADERS | {"Content-Type": "application/json"}
        )
        assert answer.status_code == 200
        assert answer.json()["marks"] == "3" * n


def test_every_format_of_the_command_line_can_be_downloaded(client):
    offered = {each["name"]: each for each in client.get("/api/exports").json()}
    assert set(offered) == {*format_names(), "report", "model"}
    for name, each in offered.items():
        assert each["here"]
        assert each["command"].startswith("fewlabels ")
        answer = client.get(f"/export/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-disposition"].startswith("attachment")
        if not answer.headers["content-disposition"].endswith('.zip"'):
            assert len(answer.content) > 100
            continue
        with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
            assert packed.testzip() is None
            if name == "folders":  # the pictures, not links to them
                pictures = [packed.read(each) for each in packed.namelist()]
                assert all(Image.open(io.BytesIO(each)).size for each in pictures)


def test_without_pictures_only_formats_that_need_none_are_offered(tmp_path):
    vectors = np.abs(np.random.default_rng(0).normal(size=(12, 4))).astype(np.float32)
    features = FeatureSet.from_arrays(vectors, [-1] * 12, [])
    with Project.create(tmp_path / "project", features, title="rows") as made:
        made.journal.decide({"row 0": "a", "row 1": "b"}, origin="import")
    with visiting(tmp_path / "project") as client:
        client.get(f"/?token={TOKEN}")
        for each in client.get("/api/exports").json():
            assert client.get(f"/export/{each['name']}").status_code == 200, each
        assert client.get("/export/hf").status_code == 422


def test_where_pictures_are_too_large_for_one_file_the_command_is_shown(client, monkeypatch):
    monkeypatch.setattr(downloads, "MOST_BYTES", 100)
    here = {each["name"]: each["here"] for each in client.get("/api/exports").json()}
    assert here["csv"]
    assert here["report"]
    assert not here["hf"]


def test_answers_are_compressed_for_who_can_read_that(client):
    plain = client.get("/page/app.js", headers={"Accept-Encoding": "identity"})
    small = client.get("/page/app.js", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert small.text == plain.text


def test_a_shared_server_answers_to_exactly_its_address(folder):
    with visiting(folder, host="192.168.7.7") as visitor:
        port = visitor.base_url.port
        shared = {"Host": f"192.168.7.7:{port}"}
        others = ("127.0.0.1", "localhost", "192.168.7.8", "evil.example")
        for host in (*(f"{name}:{port}" for name in others), "192.168.7.7", f"192.168.7.7:{port}0"):
            assert visitor.get(f"/?token={TOKEN}", headers={"Host": host}).status_code == 421
        assert visitor.get("/", headers=shared).status_code == 403  # the token, as ever
        assert visitor.get("/?token=guess", headers=shared).status_code == 403
        cookie = visitor.get(f"/?token={TOKEN}", headers=shared).headers["set-cookie"]
        with_cookie = shared | {"Cookie": cookie.partition(";")[0]}
        assert visitor.get("/", headers=with_cookie).status_code == 200
        path, body = CHANGE[0]
        assert visitor.post(path, json=body, headers=with_cookie).status_code == 403
        assert visitor.post(path, json=body, headers=with_cookie | HEADERS).status_code == 200


def read_blocks(drawn, n):
    """The n x n modules of a QR code drawn in half blocks inside a border of 4: 1 where dark."""
    halves = [half for line in drawn for half in ((line, " ▄"), (line, " ▀"))]  # upper, lower
    rows = [[int(each in dark) for each in line] for line, dark in halves]
    return [row[4 : 4 + n] for row in rows[4 : 4 + n]]


def test_serve_share_prints_the_address_and_its_qr_code(folder):
    segno = pytest.importorskip("segno")
    command = [str(Path(sys.executable).with_name("fewlabels")), "serve", str(folder), "--share"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        address = find_address()
    except InputError:  # no network here: refused in words
        assert "--share" in process.communicate(timeout=120)[1]
        assert process.returncode == 2
        return
    try:
        link = process.stdout.readline().strip()
        said = []
        while not (said and said[-1].startswith("Ctrl-C")):
            said.append(process.stderr.readline().rstrip("\n"))
        port = int(re.fullmatch(rf"http://{re.escape(address)}:(\d+)/\?token=\S+", link)[1])
        drawn = [line for line in said if set(line) <= set(" ▀▄█") and line]
        matrix = segno.make_qr(link, error="l").matrix
        assert read_blocks(drawn, len(matrix)) == [list(row) for row in matrix]
        assert any("nothing is encrypted" in line for line in said)
        with httpx.Client(trust_env=False, timeout=120, follow_redirects=True) as client:
            assert client.get(f"http://{address}:{port}/").status_code == 403
            assert client.get(link).status_code == 200
            assert "fewlabels-token" in client.get(f"http://{address}:{port}/").text
        with pytest.raises(OSError), socket.create_connection((HOST, port), timeout=10):
            pass  # one address of this machine listens, no other
    finally:
        process.terminate()
        process.communicate(timeout=120)
