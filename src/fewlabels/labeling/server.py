"""The local server of the labelling page: a Session behind a few addresses."""

import json
import secrets
import socket
from collections.abc import Callable
from importlib import resources
from typing import Annotated, Any

import torch
import uvicorn
from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from fewlabels.errors import FewLabelsError, InputError
from fewlabels.labeling.exports import to_csv
from fewlabels.labeling.guard import Guard
from fewlabels.labeling.project import THUMBNAILS
from fewlabels.labeling.session import Session
from fewlabels.labeling.thumbnails import Thumbnails

HOST = "127.0.0.1"
PAGE = resources.files("fewlabels.labeling") / "page"
FILES = {  # what the page is made of
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
    **{
        f"{part}.js": "text/javascript"
        for part in (
            "api",
            "app",
            "decisions",
            "display",
            "grid",
            "layout",
            "panels",
            "sections",
            "shared",
        )
    },
}
TOKEN_MARK = "{{token}}"
KEPT = "private, max-age=31536000, immutable"  # a thumbnail's address changes with the collection

Number = Annotated[int, Path(ge=0)]


class Decision(BaseModel):
    """Items, by number, and the label that they get; None takes theirs away."""

    model_config = ConfigDict(extra="forbid", strict=True)
    items: list[int]
    label: str | None


class Confirmed(BaseModel):
    """Items, by number, and the label that each was shown with."""

    model_config = ConfigDict(extra="forbid", strict=True)
    items: list[int]
    labels: list[str]


def make_app(session: Session, *, token: str, port: int) -> FastAPI:
    """The application; every answer is made in a thread, so that none waits for a picture."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, token=token, port=port)
    thumbnails = Thumbnails(session.collection, session.project.folder / THUMBNAILS)

    @app.exception_handler(FewLabelsError)
    def refuse(_: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, status=422)

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
            "key": collection.key,
            "pictures": collection.images is not None,
        }
        return _json({**about, "state": session.to_dict(session.state)})

    @app.get("/api/state")
    def state(since: Annotated[int, Query()] = -1) -> Response:
        now = session.state
        return Response(status_code=204) if now.version == since else _json(session.to_dict(now))

    @app.post("/api/decide")
    def decide(decision: Decision) -> Response:
        return _json(session.to_dict(session.decide(decision.items, decision.label)))

    @app.post("/api/confirm")
    def confirm(confirmed: Confirmed) -> Response:
        return _json(session.to_dict(session.confirm(confirmed.items, confirmed.labels)))

    @app.post("/api/undo")
    def undo() -> Response:
        state, items = session.undo()
        return _json({**session.to_dict(state), "undone": items})

    @app.get("/api/item/{item}")
    def item(item: Number) -> Response:
        return _json(session.describe(item))

    @app.get("/thumbnail/{item}")
    def thumbnail(item: Number, request: Request) -> Response:
        return _picture(lambda: thumbnails.get(item), request)

    @app.get("/picture/{item}")
    def picture(item: Number) -> Response:
        try:
            return Response(
                thumbnails.preview(item),
                media_type="image/jpeg",
                headers={"Cache-Control": "private, max-age=3600"},
            )
        except FewLabelsError:
            return Response(status_code=404)

    @app.get("/labels.csv")
    def labels(abstain: Annotated[float, Query()] = 0.0) -> Response:
        headers = {"Content-Disposition": 'attachment; filename="labels.csv"'}
        return Response(
            to_csv(session.rows(abstain=abstain)),
            media_type="text/csv; charset=utf-8",
            headers=headers,
        )

    return app


def _json(content: Any, *, status: int = 200) -> Response:
    return Response(
        json.dumps(content, separators=(",", ":"), ensure_ascii=False),
        status,
        media_type="application/json",
    )


def _picture(get: Callable[[], tuple[bytes, str]], request: Request) -> Response:
    try:
        content, tag = get()
    except FewLabelsError:
        return Response(status_code=404)
    headers = {"ETag": f'"{tag}"', "Cache-Control": KEPT}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="image/webp", headers=headers)


def bind(port: int) -> socket.socket:
    """A socket on this machine's own address; port 0 takes any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"--port {port} cannot be used ({error}). Choose another, or 0 for any that is free."
        ) from error
    return listener


def serve(session: Session, *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        session: What to serve.
        port: Where; 0 takes any that is free.
        on_ready: Told the address, with its token, once the server listens.
    """
    # A click's matrices are small: on a busy machine, threads that wait for one another cost more than they bring.
    torch.set_num_threads(1)
    listener = bind(port)
    token = secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    app = make_app(session, token=token, port=port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            lifespan="off",
        )
    )
    listener.listen(128)
    on_ready(f"http://{HOST}:{port}/?token={token}")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
