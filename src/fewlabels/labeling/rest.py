"""The REST mode of `fewlabels serve`: labels for programs, and an ML backend of Label Studio.

/openapi.json describes all of it. Who may ask:

token      in a header of every request but /health and /openapi.json: "Authorization: Bearer
           TOKEN", or as the password of Basic authentication, which Label Studio can send. There
           is no cookie, so that no page in a browser can ask
bodies     with their length, at most 64 MiB
addresses  in a request are never opened. Tasks of Label Studio name pictures, which are looked up
           among those of the folder of photographs
"""

import base64
import binascii
import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import numpy as np
import torch
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Scope

from fewlabels import __version__
from fewlabels.data import ImageSet, read_images
from fewlabels.data.sources import EncodedImage, ImageFile, ImageSource
from fewlabels.errors import FewLabelsError, InputError
from fewlabels.labeling.labels_file import Lookup
from fewlabels.labeling.outputs import LabelRow
from fewlabels.labeling.predict import Predictor
from fewlabels.labeling.project import PORT, TOKEN
from fewlabels.labeling.server import HOST, SECURITY_HEADERS, Gate, bind, bind_again, run_server
from fewlabels.labeling.session import Session

OPEN = ("/health", "/openapi.json")  # paths that need no token: they tell nothing of the images
LARGEST_BODY = 64 << 20  # bytes: a photograph, or some thousands of vectors
USUAL_PORT = 9090  # where Label Studio's own backends are
TOKEN_VARIABLE = "FEWLABELS_TOKEN"  # in the environment, to choose the token
UPLOADED = re.compile(r"[0-9a-f]{8}-")  # what Label Studio puts before the names of uploaded files
LONGEST_PATH = 4096  # characters of the address of a picture: longer ones are none
LEARNED_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")  # events of Label Studio
ABOUT = """Labels of images and features, as `fewlabels predict` gives them, and an ML backend of
Label Studio. Every request but /health and this description needs the token that the server
printed: `Authorization: Bearer TOKEN`, or Basic authentication with it as the password."""


class Labeled(BaseModel):
    """The label of one image or vector."""

    label: str  # "" if it is less sure than asked for
    confidence: float
    runner_up: str
    margin: float
    guess: str  # the label even if it is left out


class Vectors(BaseModel):
    """Features, one list of numbers per item."""

    model_config = ConfigDict(extra="forbid")
    features: list[list[float]]
    abstain: float = 0.0


class Model(BaseModel):
    """What labels are given by."""

    classes: list[str]
    backbone: str  # "" if only features can be labelled
    dim: int  # of the features


Abstain = Annotated[float, Query(description="Confidence below which the label is left out.")]


class Backend:
    """What answers: a model, or a project that learns from what it is told."""

    def __init__(
        self,
        predictor: Predictor | None = None,
        session: Session | None = None,
        photos: Path | None = None,
    ) -> None:
        """Begin.

        Args:
            predictor: Of a saved model.
            session: Of a project, instead of a model.
            photos: The folder of the pictures that tasks of Label Studio name; that of the project
                if left out.
        """
        self.session, self._predictor = session, predictor
        self._version: int | None = None  # of the session's state that the predictor is of
        self._rows: dict[str, LabelRow] = {}
        self._rows_of: int | None = None  # version of the state that the rows are of
        images = None
        if session is not None:
            images, photos = session.collection.images, session.collection.root
        elif photos is not None:
            images = read_images(photos)
        self._photos, self._images = photos, images
        self._places: dict[str, int] = {}
        self._lookup: Lookup | None = None
        if images is not None:
            self._list(images)

    def _list(self, images: ImageSet) -> None:
        self._images = images
        self._places = {name: place for place, name in enumerate(images.names)}
        self._lookup = Lookup(images.names, None, beside=Path())

    @property
    def predictor(self) -> Predictor:
        """What labels images and vectors now."""
        if self.session is None:
            assert self._predictor is not None, "there is a model or a project"
            return self._predictor
        state = self.session.thorough()
        if state.answer is None or state.answer.fitted is None:
            raise InputError("the project must have labels of two classes. Label some first.")
        if self._predictor is None or self._version != state.version:
            project = self.session.project
            learned = state.answer.fitted
            ready = self._predictor
            self._predictor = Predictor(
                fitted=learned.renamed(state.active),
                backbone=project.backbone,
                weights=self.session.collection.provenance.get("weights", ""),
                source=str(project.folder),
            )
            if ready is not None and "extraction" in vars(ready):  # the networks stay in memory
                vars(self._predictor)["extraction"] = ready.extraction
            self._version = state.version
        return self._predictor

    def label_bytes(self, content: bytes, abstain: float) -> LabelRow:
        """The label of an image file."""
        return self._label(EncodedImage(content, "the image"), abstain)

    def _label(self, source: ImageSource, abstain: float = 0.0) -> LabelRow:
        images = ImageSet("images", "all", (), np.array([-1]), ("the image",), (source,))
        rows, _ = self.predictor.label_images(images, abstain=abstain, keep=False)
        return rows[0]

    def find(self, data: Mapping[str, Any]) -> str | None:
        """The name of the picture that the data of a task names; None if there is none."""
        if self._lookup is None:
            return None
        for value in data.values():
            for written in _paths(value) if isinstance(value, str) else ():
                if (name := self._lookup.find(written)) is not None:
                    return name
        return None

    def label_tasks(self, tasks: Sequence[Mapping[str, Any]]) -> list[LabelRow | None]:
        """The label of the picture of each task; None where it is not among the photographs.

        Args:
            tasks: Their data.
        """
        names = [self.find(data) for data in tasks]
        if None in names and self.session is None and self._photos is not None:
            self._list(read_images(self._photos))  # they may have come since
            names = [self.find(data) for data in tasks]
        return [None if name is None else self._label_known(name) for name in names]

    def _label_known(self, name: str) -> LabelRow | None:
        assert self._images is not None, "it was found among them"
        if self.session is None:
            path = self._images.path(self._places[name])
            return None if path is None else self._label(ImageFile(path))
        if self._rows_of != self.session.state.version:
            self._rows = {row.path: row for row in self.session.rows()}
            self._rows_of = self.session.state.version
        return self._rows.get(name)

    def learn(self, data: Mapping[str, Any], annotation: Mapping[str, Any]) -> bool:
        """Record the choice of an annotation as a person's decision; whether there was one."""
        label, name = _choice(annotation), self.find(data)
        if self.session is None or label is None or name is None:
            return False
        state, person = self.session.state, _person(annotation)
        given = state.given.get(name)
        if given is not None and given.label == label and state.people.get(name, "") == person:
            return False  # sent again
        self.session.decide([self.session.collection.rows[name]], label, person=person)
        return True


def _paths(value: str) -> list[str]:
    """What a picture may be called in the folder, from the address that a task has of it.

    >>> _paths("/data/local-files/?d=photos/a%20b/1.jpg")
    ['photos/a b/1.jpg', 'a b/1.jpg', '1.jpg']
    >>> _paths("/data/upload/7/0b1c2d3e-1.jpg")[-2:]
    ['0b1c2d3e-1.jpg', '1.jpg']
    """
    if len(value) > LONGEST_PATH:
        return []
    try:
        parts = urlsplit(value)
    except ValueError:
        return []
    local = parse_qs(parts.query).get("d", [""])[0]
    names = PurePosixPath(local or unquote(parts.path)).parts
    found = ["/".join(names[first:]) for first in range(len(names)) if names[first] != "/"]
    own = [UPLOADED.sub("", each, count=1) for each in found[-1:]]
    return list(dict.fromkeys([*found, *own]))


def _choice(annotation: Mapping[str, Any]) -> str | None:
    results = annotation.get("result")
    for each in results if isinstance(results, list) else ():
        value = each.get("value") if isinstance(each, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        if isinstance(choices, list) and choices and isinstance(choices[0], str):
            return choices[0]
    return None


def _person(annotation: Mapping[str, Any]) -> str:
    """Who made an annotation: the address or the number of a user of Label Studio."""
    by = annotation.get("completed_by")
    by = by.get("email") or by.get("id") if isinstance(by, dict) else by
    return "" if by is None else f"Label Studio {by}" if isinstance(by, int) else str(by)[:60]


def _names_in(config: str) -> tuple[str, str, set[str]]:
    """Names of the tag of choices and of its object, and the choices, of a labelling interface.

    One that defines entities, which no interface needs and which can grow without end, is not read.
    """
    if "<!DOCTYPE" in config or "<!ENTITY" in config:
        return "label", "image", set()
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError:
        return "label", "image", set()
    tag = root.find(".//Choices")
    if tag is None:
        return "label", "image", set()
    values = {each.get("value", "") for each in tag.iter("Choice")}
    return tag.get("name", "label"), tag.get("toName", "image"), values


def make_api(backend: Backend, *, token: str) -> FastAPI:
    """The application; each request runs in a thread."""
    app = FastAPI(
        title="fewlabels", version=__version__, description=ABOUT, docs_url=None, redoc_url=None
    )
    app.add_middleware(TokenGuard, token=token)
    known = [Depends(HTTPBearer(auto_error=False))]  # so that the description names it
    version = f"fewlabels {__version__}"

    @app.exception_handler(FewLabelsError)
    def refuse(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    def refuse_request(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return JSONResponse({"error": f"{where} is wrong: {first['msg']}."}, 422)

    @app.get("/health", summary="Whether the server runs")
    def health() -> dict[str, str]:
        return {"status": "UP", "model_class": "fewlabels"}

    @app.get("/v1/model", dependencies=known, summary="Classes, backbone, size of the features")
    def model() -> Model:
        found = backend.predictor
        dim = found.fitted.n_features
        return Model(classes=list(found.fitted.class_names), backbone=found.backbone, dim=dim)

    @app.post(
        "/v1/labels/image",
        dependencies=known,
        summary="Label an image; the body is the file",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def label_image(request: Request, abstain: Abstain = 0.0) -> Labeled:
        content = await request.body()
        return _labeled(await run_in_threadpool(backend.label_bytes, content, abstain))

    @app.post("/v1/labels/features", dependencies=known, summary="Label vectors")
    def label_features(vectors: Vectors) -> list[Labeled]:
        names = [str(row) for row in range(len(vectors.features))]
        rows = backend.predictor.label_features(names, vectors.features, abstain=vectors.abstain)
        return [_labeled(row) for row in rows]

    @app.post("/setup", dependencies=known, tags=["Label Studio"], summary="Begin a project")
    def setup(body: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001 - every project is served
        return {"model_version": version}

    @app.get("/versions", dependencies=known, tags=["Label Studio"], summary="Models")
    def versions() -> dict[str, list[str]]:
        return {"versions": [version]}

    @app.post("/predict", dependencies=known, tags=["Label Studio"], summary="Label tasks")
    def predict(body: dict[str, Any]) -> dict[str, Any]:
        names = _names_in(str(body.get("label_config") or ""))
        rows = backend.label_tasks([_data(task) for task in _tasks(body)])
        results = [_prediction(row, names) for row in rows]
        for each in results:
            each["model_version"] = version
        return {"results": results, "model_version": version}

    @app.post("/train", status_code=201, dependencies=known, tags=["Label Studio"])
    def train(body: dict[str, Any]) -> dict[str, int]:
        """Learn from all annotations of tasks, the last one of each."""
        tasks = [(_data(task), _last(task)) for task in _tasks(body, "annotations")]
        return {"learned": sum(backend.learn(data, each) for data, each in tasks)}

    @app.post("/webhook", status_code=201, dependencies=known, tags=["Label Studio"])
    def webhook(body: dict[str, Any]) -> dict[str, int]:
        """Learn from an annotation that was made or changed."""
        task, annotation = body.get("task"), body.get("annotation")
        if body.get("action") not in LEARNED_FROM or not isinstance(annotation, dict):
            return {"learned": 0}
        return {"learned": int(backend.learn(_data(task), annotation))}

    return app


def _tasks(body: Mapping[str, Any], key: str = "tasks") -> Sequence[dict[str, Any]]:
    tasks = body.get(key)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError(f"{key} must be a list of tasks, got {type(tasks).__name__}.")
    return tasks


def _data(task: Any) -> Mapping[str, Any]:
    data = task.get("data") if isinstance(task, dict) else None
    return data if isinstance(data, dict) else {}


def _last(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last annotation of a task; an empty one where there is none."""
    annotations = task.get("annotations")
    last = annotations[-1] if isinstance(annotations, list) and annotations else None
    return last if isinstance(last, dict) else {}


def _prediction(row: LabelRow | None, names: tuple[str, str, set[str]]) -> dict[str, Any]:
    """A label as Label Studio wants it; none for a class that its interface does not offer."""
    name, to_name, choices = names
    label = "" if row is None else row.label or row.guess
    if row is None or not label or (choices and label not in choices):
        return {"result": [], "score": 0.0}
    value = {"choices": [label]}
    result = {"from_name": name, "to_name": to_name, "type": "choices", "value": value}
    return {"result": [result], "score": row.confidence}


def _labeled(row: LabelRow) -> Labeled:
    return Labeled(**{name: getattr(row, name) for name in Labeled.model_fields})


class TokenGuard(Gate):
    """Refuses requests without the token, and bodies that are too large."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        super().__init__(app, SECURITY_HEADERS)
        self.token = token.encode()

    def check(self, scope: Scope) -> Any:
        """Refuse a request without the token, or too long."""
        headers = Headers(scope=scope)
        reading = scope["method"] in ("GET", "HEAD")
        if not (reading and scope["path"] in OPEN) and not self._is_known(headers):
            refusal = {"error": "the token of this server must be given as Authorization: Bearer."}
            return JSONResponse(refusal, 401, {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0" if reading else "")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            most = f"a request must give its length, at most {LARGEST_BODY:,} bytes."
            return JSONResponse({"error": most}, 413)
        return None

    def _is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        offered = given.strip().encode()
        if kind.lower() == "basic":
            try:
                offered = base64.b64decode(offered, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(offered, self.token)


def serve_api(
    backend: Backend,
    *,
    port: int | None = None,
    host: str = HOST,
    on_ready: Callable[[str, str], None],
) -> None:
    """Serve until interrupted.

    Args:
        backend: What answers.
        port: Where; 0 takes a free one. If left out, 9090 or any free one.
        host: Address of this machine to listen on.
        on_ready: Gets the address and the token, once the server listens.
    """
    torch.set_num_threads(1)
    listener = bind_again(USUAL_PORT, host) if port is None else bind(port, host)
    port = listener.getsockname()[1]
    journal = None if backend.session is None else backend.session.project.journal
    kept = {} if journal is None else journal.about
    token = os.environ.get(TOKEN_VARIABLE) or kept.get(TOKEN) or secrets.token_urlsafe(24)
    if journal is not None:
        journal.describe({TOKEN: token, PORT: kept.get(PORT, "")})
    app = make_api(backend, token=token)
    run_server(app, listener, lambda: on_ready(f"http://{host}:{port}", token))
