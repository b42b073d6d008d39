"""The REST mode: labels for programs, Label Studio's protocol, and who may ask."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs
from fewlabels.labeling.predict import Predictor, predict_images, save_model
from fewlabels.labeling.rest import LARGEST_BODY, Backend, make_api
from fewlabels.labeling.server import bind
from fewlabels.labeling.session import open_session

TOKEN = "a-token"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
CONFIG = """<View><Image name="img" value="$image"/><Choices name="kind" toName="img">
<Choice value="apple"/><Choice value="leek"/></Choices></View>"""


@contextmanager
def serving(backend: Backend, headers=KNOWN):
    listener = bind(0)
    listener.listen()
    port = listener.getsockname()[1]
    app = make_api(backend, token=TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120, headers=headers
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def model(photos, few, tmp_path, extraction, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    outcome = label_inputs(read_inputs(photos, labels=few, extraction=extraction))
    save_model(tmp_path / "m.safetensors", outcome)
    return tmp_path / "m.safetensors"


@pytest.fixture
def client(model, photos):
    with serving(Backend(Predictor.load(model, device="cpu"), photos=photos)) as made:
        yield made


@pytest.fixture
def session(photos, few, tmp_path, extraction, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    made = open_session(tmp_path / "p", photos=photos, labels=few, extraction=extraction)
    yield made
    made.close()


def test_an_image_and_vectors_get_the_labels_of_predict(client, model, photos):
    (expected,), _ = predict_images(model, [photos / "plum-6.png"], device="cpu")
    content = (photos / "plum-6.png").read_bytes()
    found = client.post("/v1/labels/image", content=content).json()
    assert found["label"] == expected.label == "plum"
    assert found["confidence"] == pytest.approx(expected.confidence, abs=1e-3)
    about = client.get("/v1/model").json()
    assert about["classes"] == ["apple", "leek", "plum"]
    fitted = Predictor.load(model).fitted
    vectors = np.random.default_rng(0).uniform(size=(20, about["dim"]))
    body = {"features": vectors.tolist(), "abstain": 0.9}
    rows = client.post("/v1/labels/features", json=body).json()
    assert [row["guess"] for row in rows] == fitted.predict(vectors).tolist()
    sure = [row["guess"] if row["confidence"] >= 0.9 else "" for row in rows]
    assert [row["label"] for row in rows] == sure
    for body, said in (
        ({"features": [[1.0, 2.0]]}, "features must have shape"),
        ({"features": "x"}, "body.features is wrong"),
        ({"features": [], "more": 1}, "is wrong"),
    ):
        answer = client.post("/v1/labels/features", json=body)
        assert answer.status_code == 422
        assert said in answer.json()["error"]
    broken = client.post("/v1/labels/image", content=content[:200])
    assert (broken.status_code, "cannot be read" in broken.json()["error"]) == (422, True)
    assert client.post("/v1/labels/image?abstain=2", content=content).status_code == 422


def test_nobody_without_the_token_and_nothing_too_large(model):
    with serving(Backend(Predictor.load(model, device="cpu")), headers={}) as stranger:
        assert stranger.get("/health").json()["status"] == "UP"
        assert stranger.get("/openapi.json").status_code == 200
        password = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
        for value, status in (
            (None, 401),
            ("Bearer wrong", 401),
            (TOKEN, 401),
            ("Basic !!", 401),
            (f"Basic {base64.b64encode(b'x:y').decode()}", 401),
            (f"Bearer {TOKEN}", 200),
            (f"Basic {password}", 200),
        ):
            headers = {} if value is None else {"Authorization": value}
            assert stranger.get("/v1/model", headers=headers).status_code == status, value
            body = {"tasks": []}
            assert stranger.post("/predict", json=body, headers=headers).status_code == status
        # Neither a cookie nor an address lets anybody in.
        assert stranger.get(f"/v1/model?token={TOKEN}").status_code == 401
        with socket.create_connection(("127.0.0.1", stranger.base_url.port), timeout=60) as line:
            lines = ["POST /v1/labels/image HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}"]
            lines.append(f"Content-Length: {LARGEST_BODY + 1}")
            line.sendall("\r\n".join([*lines, "", ""]).encode())
            assert line.recv(1000).startswith(b"HTTP/1.1 413")
        pieces = stranger.post("/v1/labels/image", headers=KNOWN, content=iter([b"x"]))
        assert pieces.status_code == 413  # no length


def test_the_description_names_every_path_and_the_token(client):
    found = client.get("/openapi.json").json()
    paths = {"/health", "/v1/model", "/v1/labels/image", "/v1/labels/features"}
    paths |= {"/setup", "/versions", "/predict", "/train", "/webhook"}
    assert set(found["paths"]) == paths
    assert next(iter(found["components"]["securitySchemes"].values()))["scheme"] == "bearer"
    body = found["paths"]["/v1/labels/image"]["post"]["requestBody"]["content"]
    assert list(body) == ["image/*"]
    assert client.get("/docs").status_code == 404  # its scripts would come from elsewhere


def task(name: str, prefix: str = "/data/local-files/?d=photos/") -> dict:
    return {"id": 1, "data": {"text": "a picture", "image": prefix + quote(name)}}


def test_label_studio_gets_predictions_of_a_model(client, photos):
    assert client.post("/setup", json={"project": "1.2", "schema": CONFIG}).status_code == 200
    shutil.copy(photos / "apple-3.png", photos / "später 1.png")  # since the server began
    tasks = [
        task("leek-5.png"),
        task("später 1.png"),
        task("apple-4.png", "/data/upload/3/0a1b2c3d-"),
        task("plum-5.png"),  # a class that the interface does not offer
        task("no.png"),
        task("../../etc/passwd"),
        {"data": {"image": "http://[broken"}},
        {},
    ]
    answer = client.post("/predict", json={"tasks": tasks, "label_config": CONFIG}).json()
    labels = [
        each["result"][0]["value"]["choices"][0] if each["result"] else None
        for each in answer["results"]
    ]
    assert labels == ["leek", "apple", "apple", None, None, None, None, None]
    first = answer["results"][0]
    assert {key: first["result"][0][key] for key in ("from_name", "to_name", "type")} == {
        "from_name": "kind",
        "to_name": "img",
        "type": "choices",
    }
    assert 0 < first["score"] <= 1
    assert first["model_version"] == answer["model_version"]
    assert client.post("/webhook", json={"action": "PROJECT_UPDATED"}).json() == {"learned": 0}
    wrong = client.post("/predict", json={"tasks": "x"})
    assert (wrong.status_code, "tasks must be a list" in wrong.json()["error"]) == (422, True)


def test_an_interface_that_defines_entities_is_not_read(client):
    defined = '<!DOCTYPE View [<!ENTITY a "kind">]>' + CONFIG.replace('"kind"', '"&a;"')
    answer = client.post("/predict", json={"tasks": [task("leek-5.png")], "label_config": defined})
    assert answer.json()["results"][0]["result"][0]["from_name"] == "label"  # not "kind"


def annotation(label: str, by=None) -> dict:
    result = [{"from_name": "kind", "type": "choices", "value": {"choices": [label]}}]
    return {"result": result, **({} if by is None else {"completed_by": by})}


def test_a_project_learns_from_annotations_of_label_studio(session, photos):
    with serving(Backend(session=session)) as client:
        body = {"tasks": [task("leek-5.png")]}
        before = client.post("/predict", json=body).json()["results"][0]
        assert before["result"][0]["value"]["choices"] == ["leek"]
        event = {
            "action": "ANNOTATION_CREATED",
            "task": task("leek-5.png"),
            "annotation": annotation("kale", {"id": 4, "email": "zoe@example.org"}),
        }
        assert client.post("/webhook", json=event).json() == {"learned": 1}
        assert client.post("/webhook", json=event).json() == {"learned": 0}  # sent again
        after = client.post("/predict", json=body).json()["results"][0]
        assert after["result"][0]["value"]["choices"] == ["kale"]
        assert "kale" in client.get("/v1/model").json()["classes"]
        content = (photos / "leek-5.png").read_bytes()
        assert client.post("/v1/labels/image", content=content).status_code == 200
        tasks = [{**task("plum-5.png"), "annotations": [annotation("x"), annotation("plum", 7)]}]
        assert client.post("/train", json={"annotations": tasks}).json() == {"learned": 1}
    journal = session.project.journal
    assert journal.standing.people["leek-5.png"] == "zoe@example.org"
    assert journal.standing.people["plum-5.png"] == "Label Studio 7"
    assert journal.current["plum-5.png"].label == "plum"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "image", "annotations", "result", "value", "choices", "id"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(["/predict", "/train", "/webhook", "/setup"]), inner=JSON)
def test_no_body_breaks_the_server(client, path, inner):
    body = {"tasks": inner, "annotations": inner, "task": inner, "annotation": inner}
    body |= {"action": "ANNOTATION_CREATED", "label_config": inner}
    answer = client.post(path, content=json.dumps(body))
    assert answer.status_code in (200, 201, 422)


def test_the_command_serves_a_model_and_a_project(model, photos, few, tmp_path, encoder):
    content = (photos / "plum-6.png").read_bytes()
    folder = tmp_path / "p2"
    for words in ([model], [folder, "--photos", photos, "--labels", few, "--backbone", encoder]):
        command = [sys.executable, "-m", "fewlabels", "serve", *map(str, words), "--api"]
        server = subprocess.Popen(
            [*command, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FEWLABELS_TOKEN": "chosen"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            address, token = (server.stdout.readline().strip() for _ in range(2))
            assert token == "chosen"
            headers = {"Authorization": "Bearer chosen"}
            url = f"{address}/v1/labels/image"
            found = httpx.post(url, content=content, headers=headers, timeout=600, trust_env=False)
            assert found.json()["label"] == "plum"
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=600)
        finally:
            server.kill()
        assert "Authorization: Bearer chosen" in said


@pytest.mark.parametrize(
    "shape",
    ["x", 5, {"a": 1}, ["x"], [5], [{"result": 5}], [{"result": {"value": 1}}], [{"result": "x"}]],
)
def test_annotations_of_any_shape_are_no_server_error(client, shape):
    """A number or a text in the place of a list was answered by 500."""
    tasks = [{"data": {"image": "leek-5.png"}, "annotations": shape}]
    assert client.post("/train", json={"annotations": tasks}).json() == {"learned": 0}
    for each in shape if isinstance(shape, list) else [shape]:
        event = {"action": "ANNOTATION_CREATED", "task": tasks[0], "annotation": each}
        assert client.post("/webhook", json=event).json() == {"learned": 0}


def test_long_addresses_are_no_pictures_and_cost_nothing(client):
    """All ends of a path with 100,000 folders would take 10 GB."""
    tasks = [{"data": {"image": "a/" * 100_000 + "leek-5.png"}}, task("leek-5.png")]
    found = client.post("/predict", json={"tasks": tasks}).json()["results"]
    assert [len(each["result"]) for each in found] == [0, 1]


def test_unknown_tasks_list_the_folder_once(model, photos):
    """It was listed again for each of them: hours, for a folder of many photographs."""
    backend = Backend(Predictor.load(model, device="cpu"), photos=photos)
    listed = 0

    def count(event, values):
        nonlocal listed
        listed += event == "os.scandir" and str(values[0]) == str(photos)

    sys.addaudithook(count)
    backend.label_tasks([{}])
    once, listed = listed, 0
    assert once
    assert backend.label_tasks([task(f"no-{i}.png")["data"] for i in range(20)]) == [None] * 20
    assert listed == once
