"""Who may talk to the server: this machine's browser, with the token of this start, and nobody else.

Host       must be this server's own address: a foreign name that was pointed at 127.0.0.1 is refused
token      in the URL of the first visit, then in a cookie for reading, and in a header for changing
bodies     JSON of at most a megabyte: there is nothing to upload
headers    no page elsewhere may embed, script or read anything of ours
"""

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-fewlabels-token"
TOKEN_PARAMETER = "token"
LARGEST_BODY = 1 << 20  # bytes; the numbers of 100,000 images
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NO_TOKEN = (
    "This page needs the link that `fewlabels serve` printed when it started: open it from there.\n"
)


class Guard:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.cookie = f"fewlabels-{port}"  # cookies do not know ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and put the security headers on the answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._check(scope)
        await (refusal or self.app)(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> Any:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            return PlainTextResponse("This server answers only to its own address.\n", 421)
        offered = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN_PARAMETER, [""])[0]
        reading = scope["method"] in ("GET", "HEAD")
        if reading and scope["path"] == "/" and self._is_token(offered):
            answer = RedirectResponse(
                "/", 303
            )  # so that the token leaves the address bar and the history
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return answer
        if reading:
            return (
                None
                if self._is_token(self._from_cookie(headers))
                else PlainTextResponse(NO_TOKEN, 403)
            )
        if not self._is_token(headers.get(TOKEN_HEADER, "")):
            return PlainTextResponse("Changes need the token of this server.\n", 403)
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("Only JSON is accepted; nothing can be uploaded here.\n", 415)
        length = headers.get("content-length", "")
        if (
            not length.isdigit() or int(length) > LARGEST_BODY
        ):  # a body of unknown length is refused too
            return PlainTextResponse(
                f"A request must say its length, at most {LARGEST_BODY:,} bytes.\n", 413
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
