"""Connections of the server: each must send its request in time, and there are only so many.

A client that is slow, or that sends nothing, is cut off after `REQUEST_SECONDS`. Where too many
wait like that, the one that waited longest goes first, so that a new one is always let in.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

REQUEST_SECONDS = 20.0  # for a whole request, at most a megabyte, on this machine or network
MOST_FILES = 8192  # that the server may open, where the system allows so many
SPARE_FILES = 128  # for photographs, thumbnails, the journal and libraries


class PromptProtocol(H11Protocol):
    """A connection that is cut off if a request does not come in time."""

    waiting: ClassVar[dict["PromptProtocol", asyncio.TimerHandle]] = {}  # longest wait first

    def connection_made(self, transport: Any) -> None:
        """Take a new connection, and cut off the one that waited longest if there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.waiting) > most_waiting():
            next(iter(self.waiting)).cut_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; the time ends when it is complete."""
        if self not in self.waiting:  # the first bytes of the next request
            self._wait()
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._go_on()

    def cut_off(self) -> None:
        """End the connection without an answer."""
        self._go_on()
        self.transport.abort()

    def _wait(self) -> None:
        self.waiting[self] = self.loop.call_later(REQUEST_SECONDS, self.cut_off)

    def _go_on(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()


def most_waiting() -> int:
    """How many connections may wait for a request at once."""
    if resource is None:
        return MOST_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
    return max(soft - SPARE_FILES, soft // 2)


def raise_limit() -> None:
    """Let this process open as many files as the system allows, up to `MOST_FILES`."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
