"""The server under hostile requests, slow clients and many people at once.

On commit 7d831a6, NaN, Infinity and half surrogate pairs were answered by 500, and 1,500 clients
that sent nothing locked everybody else out.
"""

import ctypes
import json
import random
import resource
import socket
import sqlite3
import string
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from fewlabels.features import FeatureSet
from fewlabels.labeling import connections
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.connections import PromptProtocol
from fewlabels.labeling.project import Project
from fewlabels.labeling.rest import Backend, make_api
from fewlabels.labeling.server import bind, make_app
from fewlabels.labeling.session import Session, open_session

TOKEN = "token"
N = 60
ROWS = np.random.default_rng(0).gamma(1.0, size=(N, 6)).astype(np.float32)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")


@pytest.fixture
def session(tmp_path):
    features = FeatureSet.from_arrays(ROWS, [-1] * N, [], {}, [f"{i}.jpg" for i in range(N)])
    labels = {f"{i}.jpg": "ab"[i % 2] for i in range(4)}
    session = Session(Project.create(tmp_path / "p", features, title="t", labels=labels))
    yield session
    session.close()


@pytest.fixture
def app_and_port(session):
    listener = bind(0)
    port = listener.getsockname()[1]
    return make_app(session, token=TOKEN, port=port), listener, port


@pytest.fixture
def address(app_and_port):
    with serving(*app_and_port) as where:
        yield where


@pytest.fixture
def pictures(tmp_path, photos, encoder):
    """A session of photographs, for the REST mode."""
    made = open_session(
        tmp_path / "q", photos=photos, extraction=Extraction(str(encoder), "cpu", None, 0)
    )
    yield made
    made.close()


@pytest.fixture
def rest(pictures):
    """The application of the REST mode, and where it answers."""
    listener = bind(0)
    port = listener.getsockname()[1]
    app = make_api(Backend(session=pictures), token=TOKEN)
    with serving(app, listener, port) as where:
        yield app, where


@contextmanager
def serving(app, listener, port):
    config = uvicorn.Config(app, http=PromptProtocol, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    listener.listen(1024)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    listener.close()


@contextmanager
def make_client(address: str):
    headers = {"x-fewlabels-token": TOKEN, "content-type": "application/json"}
    how = {"base_url": address, "trust_env": False, "headers": headers, "timeout": 120}
    with httpx.Client(**how) as client:
        assert client.get(f"/?token={TOKEN}").status_code == 303
        yield client


REST_HEADERS = {"authorization": f"Bearer {TOKEN}"}
TEXTS = [
    *(
        "",
        "leek",
        "\ud800",
        "\0",
        "=1+1",
        "<script>alert(1)</script>",
        "../../etc/passwd",
        "é" * 300,
    ),
    *("\u202e", "' OR 1=1 --", "%s%n", "a" * 5000, " ", "\n"),
]
NUMBERS = [0, 1, -1, 59, 60, 10**9, 2**63, 10**40, 0.5, float("nan"), float("inf"), True, None]


def value(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(5 if depth < 3 else 3)
    if kind < 2:
        return rng.choice(NUMBERS if kind else TEXTS)
    if kind == 2:
        return rng.randrange(N)
    if kind == 3:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(FIELDS): value(rng, depth + 1) for _ in range(rng.randrange(4))}


FIELDS = ["items", "label", "labels", "mark", "old", "new", "batch", "since", "x", "__proto__"]


def request(rng: random.Random, paths: list[tuple[str, str]]) -> tuple[str, str, bytes | None]:
    """A method, a URL and a body for one of the operations that the OpenAPI description lists."""
    method, path = rng.choice(paths)
    words = [str(rng.choice([*TEXTS, *NUMBERS])), "".join(rng.choices(string.printable, k=5)), "1"]
    for name in ("{name}", "{item}", "{form}"):
        path = path.replace(name, quote(rng.choice(words), errors="replace"))
    if rng.random() < 0.3:
        name = rng.choice(("since", "full", "abstain", "token"))
        path += f"?{name}={rng.choice(('nan', '-1', '1e999', '', '9' * 30, 'x', '%00', '%ff'))}"
    if method == "GET":
        return method, path, None
    if rng.random() < 0.1:
        return method, path, rng.randbytes(rng.randrange(60))
    body: object = value(rng)
    if rng.random() < 0.8:
        body = {
            name: rng.choice((value(rng), [rng.randrange(N)], rng.choice(TEXTS)))
            for name in rng.sample(FIELDS[:7], rng.randrange(1, 4))
        }
    return method, path, json.dumps(body).encode()


@pytest.mark.filterwarnings("ignore")
def test_hostile_requests(drill, session, app_and_port, tmp_path):
    """No server error, and nothing outside the project is touched."""
    from starlette.testclient import TestClient

    app, listener, port = app_and_port
    listener.close()
    described = app.openapi()["paths"]
    paths = [(verb.upper(), path) for path, verbs in described.items() for verb in verbs]
    assert len(paths) >= 12
    headers = {"host": f"127.0.0.1:{port}", "x-fewlabels-token": TOKEN}
    headers |= {"content-type": "application/json", "cookie": f"fewlabels-{port}={TOKEN}"}
    beside = tmp_path / "beside"
    beside.mkdir()
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        for rng in drill.tries("hostile requests", 300, 10_000):
            method, path, body = request(rng, paths)
            try:
                answer = client.request(method, path, content=body, follow_redirects=False)
            except (httpx.InvalidURL, UnicodeError):
                drill.judge(True, "")  # no such request can be sent
                continue
            drill.judge(answer.status_code < 500, f"{method} {path} {body!r}: {answer.status_code}")
    assert list(beside.iterdir()) == []
    session.decide([0], "a")
    assert session.state.given["0.jpg"].label == "a"


REST_FIELDS = [
    *("tasks", "annotations", "task", "annotation", "data", "image", "result", "value", "choices"),
    *("completed_by", "email", "id", "action", "label_config", "features", "abstain", "project"),
]
REST_TEXTS = [
    *TEXTS,
    *("ANNOTATION_CREATED", "apple/apple-0.png", "http://[x", "a/" * 4000, "file:///etc/passwd"),
    *("<View><Choices name='a' toName='b'><Choice value='leek'/></Choices></View>", "<" * 3000),
    "<a>" * 5000,
]


def rest_value(rng: random.Random, depth: int = 0) -> object:
    """As `value`, in the words of Label Studio; mostly of the shape that it sends."""
    kind = rng.randrange(6 if depth < 5 else 3)
    if kind < 3:
        return rng.choice((rng.choice(NUMBERS), rng.choice(REST_TEXTS), rng.choice(REST_TEXTS)))
    if kind == 3:
        return [rest_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 4:
        return [{"data": rest_value(rng, depth + 1), "annotations": rest_value(rng, depth + 1)}]
    names = rng.sample(REST_FIELDS, rng.randrange(1, 5))
    return {name: rest_value(rng, depth + 1) for name in names}


@pytest.mark.filterwarnings("ignore")
def test_hostile_requests_to_the_rest_mode(drill, rest, pictures, tmp_path):
    """No server error, and nothing beside the project is touched."""
    from starlette.testclient import TestClient

    app, _ = rest
    paths = [
        (verb.upper(), path) for path, verbs in app.openapi()["paths"].items() for verb in verbs
    ]
    assert len(paths) >= 9
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    with TestClient(app, headers=REST_HEADERS, raise_server_exceptions=False) as client:
        for rng in drill.tries("hostile requests to the REST mode", 300, 10_000):
            method, path = rng.choice(paths)
            if rng.random() < 0.2:
                path += f"?abstain={rng.choice(('nan', '-1', '1e999', '', 'x', '0.5'))}"
            body = rng.randbytes(rng.randrange(60))
            if rng.random() < 0.9:
                names = rng.sample(REST_FIELDS, rng.randrange(1, 6))
                content = {name: rest_value(rng) for name in names}
                if rng.random() < 0.3:
                    content["action"] = "ANNOTATION_CREATED"
                body = json.dumps(content).encode()
            answer = client.request(method, path, content=None if method == "GET" else body)
            said = f"{method} {path} {body[:300]!r}: {answer.status_code}"
            drill.judge(answer.status_code < 500, said)
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before
    pictures.decide([0], "a")
    assert pictures.state.given[pictures.collection.names[0]].label == "a"


@pytest.mark.skipif(not find_spec("schemathesis"), reason="could not import 'schemathesis'")
@pytest.mark.filterwarnings("ignore")
def test_requests_by_the_description_of_the_rest_mode(drill, rest):
    app, address = rest
    own = {"headers": REST_HEADERS}
    ask_by_description(drill, app.openapi(), address, own, "REST mode by schemathesis", least=9)


def test_eight_people_annotate_at_once(drill, rest, pictures):
    """Every acknowledged annotation is in the journal."""
    names = pictures.collection.names
    for number, rng in enumerate(drill.tries("eight people annotating, REST mode", 1, 20)):
        told: list[list[tuple[str, str]]] = [[] for _ in range(8)]

        def annotate(person, seed, number=number, told=told):
            own = random.Random(seed)
            how = {"base_url": rest[1], "trust_env": False, "headers": REST_HEADERS}
            with httpx.Client(**how, timeout=120) as client:
                for turn in range(6):
                    name, label = own.choice(names), f"{number}-{person}-{turn}"
                    event = {
                        "action": "ANNOTATION_CREATED",
                        "task": {"data": {"image": f"/data/local-files/?d=photos/{quote(name)}"}},
                        "annotation": {
                            "result": [{"value": {"choices": [label]}}],
                            "completed_by": person,
                        },
                    }
                    answer = client.post("/webhook", json=event)
                    if answer.status_code == 201 and answer.json()["learned"]:
                        told[person].append((name, label))

        people = [threading.Thread(target=annotate, args=(i, rng.random())) for i in range(8)]
        for each in people:
            each.start()
        for each in people:
            each.join()
        journal = pictures.project.journal
        good = all(len(some) == 6 for some in told)
        for person, some in enumerate(told):
            for name, label in some:
                kept = [each for each in journal.history(name) if each["label"] == label]
                good &= [each["person"] for each in kept] == [f"Label Studio {person}"]
        drill.judge(good, str(told)[:300])


def test_a_thousand_connections_to_the_rest_mode(drill, rest):
    connections.raise_limit()
    port = int(rest[1].rpartition(":")[2])
    ask = f"GET /versions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    drill_connections(drill, port, ask, "1,000 connections at once, REST mode")


def test_slow_clients_do_not_lock_others_out_of_the_rest_mode(drill, rest, monkeypatch):
    port = int(rest[1].rpartition(":")[2])
    monkeypatch.setattr(connections, "MOST_FILES", 400)
    limit = connections.most_waiting()
    for _ in drill.tries("500 slow clients, REST mode", 1, 10):
        slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(500)]
        for each in slow:
            each.sendall(b"POST /v1/labels/image HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n")
        how = {"trust_env": False, "headers": REST_HEADERS, "timeout": 120}
        good = httpx.get(f"{rest[1]}/versions", **how).status_code == 200
        good &= len(PromptProtocol.waiting) <= limit
        for each in slow:
            each.close()
        drill.judge(good, f"{len(PromptProtocol.waiting)} wait")


@pytest.mark.filterwarnings("ignore")
def test_downloads_on_a_full_disk(session, app_and_port):
    """Refused in words; then there is room again, and nothing is left in the project."""
    from starlette.testclient import TestClient

    app, listener, port = app_and_port
    listener.close()
    headers = {"host": f"127.0.0.1:{port}", "cookie": f"fewlabels-{port}={TOKEN}"}
    before = {path.name for path in session.project.folder.iterdir()}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        session.decide([9], "a")
        while not session.state.settled:
            time.sleep(0.01)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as on a full disk
        try:
            answers = [client.get(f"/export/{name}") for name in ("csv", "report", "model")]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for answer in answers:
            assert answer.status_code == 422
            assert "cannot be written" in answer.json()["error"]
        assert client.get("/export/csv").status_code == 200
    assert {path.name for path in session.project.folder.iterdir()} == before


@pytest.mark.skipif(not find_spec("schemathesis"), reason="could not import 'schemathesis'")
@pytest.mark.filterwarnings("ignore")
def test_requests_by_the_description_of_the_api(drill, session, address):
    """schemathesis: valid and invalid requests for every operation, with all that JSON can hold."""
    port = int(address.rpartition(":")[2])
    described = make_app(session, token=TOKEN, port=port).openapi()
    own = {"headers": {"x-fewlabels-token": TOKEN}, "cookies": {f"fewlabels-{port}": TOKEN}}
    ask_by_description(drill, described, address, own, "requests by schemathesis", least=12)
    session.decide([0], "a")
    assert session.state.given["0.jpg"].label == "a"


def ask_by_description(drill, described, address, own, name, *, least) -> None:
    """Send valid and invalid requests for every operation of an OpenAPI description."""
    import requests
    import schemathesis

    n = sum(1 for _ in drill.tries(name, 5, 100))  # of each kind
    kinds = [
        (operation.ok(), mode)
        for operation in schemathesis.openapi.from_dict(described).get_all_operations()
        for mode in schemathesis.GenerationMode
    ]
    assert len(kinds) >= 2 * least
    how = settings(
        max_examples=n,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with requests.Session() as client:
        client.trust_env = False

        def ask(case):
            answer = case.call(base_url=address, session=client, allow_redirects=False, **own)
            said = f"{case.method} {case.formatted_path} {case.body!r}: {answer.status_code}"
            drill.judge(answer.status_code < 500, said[:300])

        for operation, mode in kinds:
            with suppress(Unsatisfiable):  # an operation without arguments has no invalid request
                how(given(case=operation.as_strategy(generation_mode=mode))(ask))()


def test_nan_and_half_surrogates_are_refused_in_words(address):
    """Commit 7d831a6 answered these by 500."""
    with make_client(address) as client:
        bodies = ['{"items": [NaN], "label": "a"}', '{"items": [Infinity], "label": "a"}']
        bodies += ['{"items": [0], "label": "\\ud800"}']
        for body in bodies:
            answer = client.post("/api/decide", content=body)
            assert answer.status_code == 422, body
            assert answer.json()["error"]
        answer = client.post("/api/relabel", content='{"old": "\\udfff", "new": null}')
        assert answer.status_code == 422


def test_eight_people_at_once(drill, session, address):
    """Every acknowledged decision is in the journal, in the order of each person."""
    for rng in drill.tries("eight people clicking", 2, 30):
        told: list[list[tuple[int, str]]] = [[] for _ in range(8)]

        def click(person, seed, told=told):
            own = random.Random(seed)
            with make_client(address) as client:
                for number in range(6):
                    row, label = own.randrange(N), f"{person}-{number}"
                    answer = client.post("/api/decide", json={"items": [row], "label": label})
                    if answer.status_code == 200:
                        told[person].append((row, label))

        people = [threading.Thread(target=click, args=(i, rng.random())) for i in range(8)]
        for each in people:
            each.start()
        for each in people:
            each.join()
        journal = session.project.journal
        kept = {row: journal.history(f"{row}.jpg") for row in range(N)}
        good = all(len(some) == 6 for some in told)
        for some in told:
            times = []
            for row, label in some:
                found = [entry["time"] for entry in kept[row] if entry["label"] == label]
                good &= bool(found)
                times.append(found[-1] if found else "")
            good &= times == sorted(times)
        drill.judge(good, str(told)[:300])


def test_a_thousand_connections(drill, address):
    connections.raise_limit()
    port = int(address.rpartition(":")[2])
    ask = f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncookie: fewlabels-{port}={TOKEN}\r\n\r\n"
    drill_connections(drill, port, ask, "1,000 connections at once")


def drill_connections(drill, port: int, ask: str, name: str) -> None:
    for _ in drill.tries(name, 1, 10):
        where = ("127.0.0.1", port)
        opened = [socket.create_connection(where, timeout=120) for _ in range(1000)]
        for each in opened:
            each.sendall(ask.encode())
        answers = [each.recv(12) for each in opened]
        for each in opened:
            each.close()
        good = sum(answer == b"HTTP/1.1 200" for answer in answers)
        drill.judge(good == 1000, f"{good} of 1,000 were answered")


def test_slow_clients_do_not_lock_others_out(drill, address, monkeypatch):
    """Clients that never finish a request: a new one is let in, and descriptors are bounded."""
    port = int(address.rpartition(":")[2])
    monkeypatch.setattr(connections, "MOST_FILES", 400)
    limit = connections.most_waiting()
    assert limit < 400
    for _ in drill.tries("500 slow clients, 272 let wait", 1, 10):
        slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(500)]
        for each in slow:
            each.sendall(b"GET / HTTP/1.1\r\nhost:")
        with make_client(address) as client:
            good = client.get("/api/state").status_code == 200
        good &= len(PromptProtocol.waiting) <= limit
        for each in slow:
            each.close()
        drill.judge(good, f"{len(PromptProtocol.waiting)} wait")


def test_a_request_that_does_not_come_in_time_is_cut_off(address, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        slow.sendall(b"POST /api/decide HTTP/1.1\r\n")
        with suppress(ConnectionResetError):
            assert slow.recv(10) == b""


def test_the_background_answer_survives_an_error(session):
    """On commit 7d831a6 one exception ended all later answers until a restart."""
    (worker,) = (each for each in threading.enumerate() if each.name == "fewlabels-settle")
    while not session.state.searched:
        time.sleep(0.01)
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)  # the worker does not go on between the look and the exception
    try:
        session.decide([10], "a")
        while Path(running(worker)).name in ("threading.py", "session.py"):  # it waits
            time.sleep(0)
        place, raised = ctypes.c_ulong(worker.ident), ctypes.py_object(MemoryError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(place, raised)
    finally:
        sys.setswitchinterval(before)
    assert session.state.given["10.jpg"].label == "a"
    session.decide([11], "b")
    while not session.state.settled:
        assert worker.is_alive()
        time.sleep(0.01)


def running(thread: threading.Thread) -> str:
    """The file of the code that a thread runs."""
    return sys._current_frames()[thread.ident].f_code.co_filename


def test_model_labels_that_cannot_be_kept_are_no_obstacle(session):
    path = session.project.folder / "project.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM items WHERE name = '59.jpg'")
    session.decide([10], "a")
    while not session.state.settled:
        time.sleep(0.01)
    assert session.state.given["10.jpg"].label == "a"


def test_descriptors_are_limited():
    connections.raise_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert connections.most_waiting() < soft


@pytest.mark.filterwarnings("ignore")
def test_the_page_is_told_that_a_decision_was_not_kept(session, app_and_port):
    """Commit 7d831a6 answered a bare 500. When there is room again, work goes on."""
    from starlette.testclient import TestClient

    app, listener, port = app_and_port
    listener.close()
    headers = {"host": f"127.0.0.1:{port}", "x-fewlabels-token": TOKEN}
    decision = {"items": [7], "label": "leek"}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # as on a full disk
        try:
            answer = client.post("/api/decide", json=decision)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert answer.status_code == 422
        assert "The decision was not kept. Free some space" in answer.json()["error"]
        assert "7.jpg" not in session.project.journal.current
        assert client.post("/api/decide", json=decision).status_code == 200
    assert session.project.journal.current["7.jpg"].label == "leek"
