"""The server of the labelling page: a Session behind a few URLs, for this machine only if not told
otherwise.

Who may ask:

host       the request must name this server's own address; any other name for it is refused. A
           server that is shared has one address in the local network, and answers to that alone
token      in the URL of the first visit, then in a cookie to read, and in a header to change; the
           project keeps it, so that an open page goes on after a restart
bodies     JSON, at most a megabyte and a few bytes per item: nothing can be uploaded
headers    no other page may embed, script or read anything of this one
"""

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from pathlib import PurePath
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote

import torch
import uvicorn
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.background import BackgroundTask
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlabels.data.bursts import SECONDS as BURST_SECONDS
from fewlabels.errors import FewLabelsError, InputError
from fewlabels.io.files import new_folder
from fewlabels.labeling.collection import shorten
from fewlabels.labeling.connections import PromptProtocol, raise_limit
from fewlabels.labeling.downloads import list_downloads, make_download
from fewlabels.labeling.names import knows_words
from fewlabels.labeling.outputs import for_spreadsheets, to_csv
from fewlabels.labeling.project import PORT, THUMBNAILS, TOKEN
from fewlabels.labeling.session import Session
from fewlabels.labeling.state import State
from fewlabels.labeling.thumbnails import Thumbnails

HOST = "127.0.0.1"
OWN_NAMES = (HOST, "localhost", "[::1]")
ELSEWHERE = ("192.0.2.1", 9)  # of no machine (RFC 5737): shows which way a packet would leave
PAGE = resources.files("fewlabels.labeling") / "page"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {  # what the page loads: name and media type
    file.name: MEDIA_TYPES[suffix]
    for file in PAGE.iterdir()
    if (suffix := PurePath(file.name).suffix) in MEDIA_TYPES
}
SOUNDS = {  # files of other kinds are not sent
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".wav": "audio/wav",
    ".webm": "audio/webm",
}
TOKEN_MARK = "{{token}}"
TOKEN_HEADER = "x-fewlabels-token"
TOKEN_PARAMETER = "token"
LONGEST_QUERY = 500  # characters of a search
MAP_SIDE = 4000  # places on the map are sent as whole numbers up to this
LARGEST_BODY = 1 << 20  # bytes, and more for many images:
BYTES_PER_ITEM = 8  # a number of up to seven digits and a comma
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; media-src 'self'; "
    "style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPENER_POLICY = {"Cross-Origin-Opener-Policy": "same-origin"}
NO_TOKEN = (
    "This page needs the link that `fewlabels serve` printed when it started: open it from there.\n"
)
REVALIDATED = "private, no-cache"  # kept, but asked for again: the file may be another by now

Number = Annotated[int, Path(ge=0)]
Since = Annotated[int | None, Query()]  # the version that the page has
Key = Annotated[str | None, Query()]  # of the collection that the page has
# Who decides, percent-encoded: headers are ASCII. The page of each browser keeps its own.
Person = Annotated[str | None, Header(alias="X-Fewlabels-Person")]


class StaleError(FewLabelsError):
    """A page of another collection: its numbers mean other items."""


class Decision(BaseModel):
    """Items, by number, and the label or mark that they get; without both, theirs is removed."""

    model_config = ConfigDict(extra="forbid", strict=True)
    items: list[int]
    label: str | None
    mark: str | None = None


class Confirmed(BaseModel):
    """Items, by number, under the label that they were shown with."""

    model_config = ConfigDict(extra="forbid", strict=True)
    shown: dict[str, list[int]]


class Items(BaseModel):
    """Items, by number."""

    model_config = ConfigDict(extra="forbid", strict=True)
    items: list[int]


class Relabeled(BaseModel):
    """A class, and its new name; None removes its labels."""

    model_config = ConfigDict(extra="forbid", strict=True)
    old: str
    new: str | None


class Reversed(BaseModel):
    """The batch that the page says would be undone, or done again."""

    model_config = ConfigDict(extra="forbid", strict=True)
    batch: int | None = None


def make_app(session: Session, *, token: str, port: int, host: str = HOST) -> FastAPI:
    """The application; each request runs in a thread, so that none waits for a picture."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=4096, compresslevel=6)  # 5 ms of 30,000 images
    largest = LARGEST_BODY + BYTES_PER_ITEM * len(session.collection)
    app.add_middleware(Guard, token=token, port=port, host=host, largest=largest)
    thumbnails = Thumbnails(session.collection, session.project.folder / THUMBNAILS)

    own_key = session.collection.key

    def same_items(key: Key = None) -> None:
        if key not in (None, own_key):
            raise StaleError("the images of the project changed. Reload the page.")

    by_number = [Depends(same_items)]

    @app.exception_handler(FewLabelsError)
    def refuse(_: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, status=409 if isinstance(error, StaleError) else 422)

    @app.exception_handler(RequestValidationError)
    def refuse_request(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return _json({"error": f"{where} is wrong: {first['msg']}."}, status=422)

    @app.get("/")
    def page() -> Response:
        return Response(
            (PAGE / "index.html").read_text(encoding="utf-8").replace(TOKEN_MARK, token),
            media_type="text/html",
        )

    @app.get("/page/{name}")
    def page_file(name: str) -> Response:
        if name not in FILES:
            return Response(status_code=404)
        return Response((PAGE / name).read_bytes(), media_type=FILES[name])

    @app.get("/api/project")
    def project() -> Response:
        collection = session.collection
        about = {
            "title": collection.title,
            "names": collection.names,
            "key": own_key,
            "pictures": collection.images is not None,
            "person": session.person,
            "shared": host != HOST,
            "texts": None if collection.texts is None else [*map(shorten, collection.texts)],
            "sounds": collection.shown is not None and collection.shown.audio is not None,
            "noun": collection.noun,
            "separator": session.sub_classes,
            "burst_seconds": BURST_SECONDS,
            "searchable": knows_words(session.project.backbone),
        }
        return _json({**about, "state": session.to_dict(session.state)})

    @app.get("/api/state", dependencies=by_number)
    def state(since: Since = None) -> Response:
        now = session.state
        if now.version == since:
            return Response(status_code=204)
        return _json(session.to_dict(now, since))

    @app.post("/api/decide", dependencies=by_number)
    def decide(decision: Decision, since: Since = None, person: Person = None) -> Response:
        who = None if person is None else unquote(person)
        state = session.decide(decision.items, decision.label, mark=decision.mark, person=who)
        return _json(session.to_dict(state, since))

    @app.post("/api/confirm", dependencies=by_number)
    def confirm(confirmed: Confirmed, since: Since = None, person: Person = None) -> Response:
        pairs = [(item, label) for label, items in confirmed.shown.items() for item in items]
        items, labels = [item for item, _ in pairs], [label for _, label in pairs]
        who = None if person is None else unquote(person)
        state, missing = session.confirm(items, labels, person=who)
        return _json({**session.to_dict(state, since), "missing": missing})

    @app.post("/api/relabel", dependencies=by_number)
    def relabel(relabeled: Relabeled, since: Since = None) -> Response:
        return _json(session.to_dict(session.relabel(relabeled.old, relabeled.new), since))

    def reversed_(
        asked: Reversed, reverse: Callable[[int | None], tuple[State, list[int]]], since: int | None
    ) -> Response:
        """What was undone: how many items, and which if it is one. The page shows it then."""
        state, items = reverse(asked.batch)
        only = items[0] if len(items) == 1 else None
        told = {"n_undone": len(items), "undone": only}
        return _json({**session.to_dict(state, since), **told})

    @app.post("/api/undo", dependencies=by_number)
    def undo(undone: Reversed, since: Since = None) -> Response:
        return reversed_(undone, session.undo, since)

    @app.post("/api/redo", dependencies=by_number)
    def redo(redone: Reversed, since: Since = None) -> Response:
        return reversed_(redone, session.redo, since)

    @app.post("/api/about", dependencies=by_number)
    def about(items: Items) -> Response:
        return _json(session.describe(items.items))

    @app.get("/api/similar/{item}", dependencies=by_number)
    def similar(item: Number) -> Response:
        rows, cosines = session.similar(item)
        return _json({"rows": rows.tolist(), "similarities": cosines.round(4).tolist()})

    @app.get("/api/burst/{item}", dependencies=by_number)
    def burst(item: Number) -> Response:
        return _json({"rows": session.burst(item)})

    @app.get("/api/search", dependencies=by_number)
    def search(words: Annotated[str, Query(min_length=1, max_length=LONGEST_QUERY)]) -> Response:
        rows, cosines = session.search(words)
        return _json({"rows": rows.tolist(), "similarities": cosines.round(4).tolist()})

    @app.get("/api/map")
    def map_() -> Response:
        across, down = (MAP_SIDE * session.places()).round().astype(int).T.tolist()
        return _json({"across": across, "down": down, "side": MAP_SIDE})

    def send_picture(
        request: Request, item: int, media_type: str, make: Callable[[], bytes]
    ) -> Response:
        try:
            headers = {"ETag": f'"{thumbnails.tag(item)}"', "Cache-Control": REVALIDATED}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(make(), media_type=media_type, headers=headers)
        except FewLabelsError:
            return Response(status_code=404)

    @app.get("/thumbnail/{item}")
    def thumbnail(item: Number, request: Request) -> Response:
        return send_picture(request, item, "image/webp", lambda: thumbnails.get(item))

    @app.get("/picture/{item}")
    def picture(item: Number, request: Request, full: Annotated[bool, Query()] = False) -> Response:
        return send_picture(
            request, item, "image/jpeg", lambda: thumbnails.preview(item, full=full)
        )

    @app.get("/api/text/{item}", dependencies=by_number)
    def text(item: Number) -> Response:
        texts = session.collection.texts
        if texts is None or item >= len(texts):
            return Response(status_code=404)
        return _json({"text": texts[item]})

    @app.get("/audio/{item}")
    def audio(item: Number) -> Response:
        known = item < len(session.collection)
        path = session.collection.audio_path(item) if known else None
        if path is None or (kind := SOUNDS.get(path.suffix.lower())) is None:
            return Response(status_code=404)
        return FileResponse(path, media_type=kind)  # answers requests of a part, so one can seek

    @app.get("/labels.csv")
    def labels(abstain: Annotated[float, Query()] = 0.0) -> Response:
        return Response(
            for_spreadsheets(to_csv(session.rows(abstain=abstain), texts=session.collection.texts)),
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="labels.csv"'},
        )

    @app.get("/api/exports")
    def exports() -> Response:
        return _json(list_downloads(session))

    @app.get("/export/{name}")
    def export(name: str) -> Response:
        with ExitStack() as stack:
            folder = stack.enter_context(new_folder(session.project.folder / "download"))
            file = make_download(session, name, folder)
            done = BackgroundTask(stack.pop_all().close)
        headers = {"Content-Encoding": "identity"}  # a zip file is compressed already
        return FileResponse(file, filename=file.name, headers=headers, background=done)

    return app


def _json(content: Any, *, status: int = 200) -> Response:
    return Response(
        # half a surrogate pair, which JSON allows, is no text
        json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"),
        status,
        media_type="application/json",
    )


class Gate:
    """ASGI middleware that refuses requests (`check`), and adds headers to every response."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and add the security headers to the response."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self.check(scope) or self.app)(scope, receive, send_guarded)

    def check(self, scope: Scope) -> Any:
        """The response that refuses the request; None if it may pass."""
        raise NotImplementedError


class Guard(Gate):
    """Refuses requests from elsewhere (see the top of this file)."""

    def __init__(
        self, app: ASGIApp, *, token: str, port: int, host: str, largest: int = LARGEST_BODY
    ) -> None:
        # At another address than this machine's own, browsers ignore the policy, with a complaint.
        super().__init__(app, SECURITY_HEADERS | (OPENER_POLICY if host == HOST else {}))
        self.token = token
        self.largest = largest
        self.hosts = {f"{name}:{port}" for name in (OWN_NAMES if host == HOST else (host,))}
        self.cookie = f"fewlabels-{port}"  # browsers share cookies between ports

    def check(self, scope: Scope) -> Any:
        """Refuse another host, a wrong token and what is no JSON, or too long."""
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            return PlainTextResponse("This server answers only to its own address.\n", 421)
        offered = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN_PARAMETER, [""])[0]
        reading = scope["method"] in ("GET", "HEAD")
        if reading and scope["path"] == "/" and self._is_token(offered):
            # Without the token, which then is neither in the address bar nor in the history.
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return answer
        if reading:
            known = self._is_token(self._from_cookie(headers))
            return None if known else PlainTextResponse(NO_TOKEN, 403)
        if not self._is_token(headers.get(TOKEN_HEADER, "")):
            return PlainTextResponse("Changes need the token of this server.\n", 403)
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("Only JSON is accepted; nothing can be uploaded here.\n", 415)
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > self.largest:  # unknown lengths are refused too
            return PlainTextResponse(
                f"A request must give its length, at most {self.largest:,} bytes.\n", 413
            )
        return None

    def _is_token(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), self.token.encode())

    def _from_cookie(self, headers: Headers) -> str:
        try:
            cookie = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookie[self.cookie].value if self.cookie in cookie else ""


def find_address() -> str:
    """This machine's address in the local network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(ELSEWHERE)  # sends nothing
            address = ipaddress.ip_address(probe.getsockname()[0])
    except OSError as error:
        raise InputError(
            f"share needs a network, and this machine is in none ({error}). Connect it to one."
        ) from error
    if address.is_global or address.is_loopback:
        raise InputError(
            f"share must be in a local network, got {address}, this machine's address, "
            "which is not of one. Use a private network, or an SSH tunnel."
        )
    return str(address)


def bind(port: int, host: str = HOST) -> socket.socket:
    """A socket on one address of this machine; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"port must be a free one, got {port}, which cannot be used ({error}). "
            "Choose another, or 0 for any free one."
        ) from error
    return listener


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def bind_again(port: int, host: str = HOST) -> socket.socket:
    """A socket on the port of the last time, or on any free one if that is taken."""
    try:
        return bind(port, host)
    except InputError:
        return bind(0, host)


def serve(
    session: Session,
    *,
    port: int | None = None,
    host: str = HOST,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until interrupted.

    Args:
        session: What to serve.
        port: Where; 0 takes a free one, None the one of the last time if it is free.
        host: Address of this machine to listen on; `find_address` is the one to share.
        on_ready: Gets the URL with the token, once the server listens.
    """
    # The matrices of a click are small: threads would cost more than they save.
    torch.set_num_threads(1)
    journal = session.project.journal
    kept = journal.about
    listener = bind_again(_number(kept.get(PORT)), host) if port is None else bind(port, host)
    token, port = kept.get(TOKEN) or secrets.token_urlsafe(24), listener.getsockname()[1]
    journal.describe({TOKEN: token, PORT: str(port)})
    app = make_app(session, token=token, port=port, host=host)
    run_server(app, listener, lambda: on_ready(f"http://{host}:{port}/?token={token}"))


def run_server(app: FastAPI, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Answer on a socket until interrupted; `on_ready` is called once the server listens."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=PromptProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            lifespan="off",
        )
    )
    raise_limit()
    listener.listen(1024)
    on_ready()
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
