"""The program `fewlabels`, which also ends well: on a signal, and on a stdout that is gone.

Ctrl-C (SIGINT) and SIGTERM raise KeyboardInterrupt, which the commands may use to say what is kept.
A thread ends the process where Python cannot, such as in a long call of the compiler, or where some
library swallowed the interrupt. Nothing is lost by that: every file is written atomically. Imports
of anything large come after this is prepared.
"""

import os
import signal
import socket
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any, NoReturn

GRACE_SECONDS = 3.0  # that a command has to end by itself after a signal
SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
EXIT_BAD_OUTPUT = 1

_received: list[int] = []
_received_at: list[float] = []  # of time.monotonic


def main() -> NoReturn:
    """Run a command, and exit with its code, or with 128 + the number of a signal that ended it."""
    _watch_signals()
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        else:
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal is no reason to fail
    code: Any = 1
    try:
        from fewlabels.cli import main as run

        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) or ended.code is None else 1
    except BaseException:  # an interrupted import raises errors of any class
        if not _received:
            raise
    if _received:
        _say(_received[0])
        _end(128 + _received[0])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has what it wanted
        _end(code or 0)
    except OSError as error:
        print(f"fewlabels: stdout cannot be written ({error.strerror}).", file=sys.stderr)  # noqa: T201
        _end(code or EXIT_BAD_OUTPUT)
    sys.exit(code)


def _watch_signals() -> None:
    def interrupt(number: int, _frame: object) -> None:
        if _received:  # one is enough: a second must not hit the cleaning up
            return
        _received.append(number)
        _received_at.append(time.monotonic())
        # Of libraries that an interrupt surprises:
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore")
        raise KeyboardInterrupt

    heard, told = socket.socketpair()
    told.setblocking(False)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as shells start background jobs
            signal.signal(number, interrupt)
    # Python's handlers run between two steps of Python, the bytes of this socket come at once.
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)

    def end_late() -> None:
        while (number := ord(heard.recv(1))) not in SIGNALS:
            pass
        told.fileno()  # keeps the socket open as long as the thread lives
        time.sleep(GRACE_SECONDS)
        _say(number)
        _end(128 + number)

    threading.Thread(target=end_late, name="fewlabels-signals", daemon=True).start()


def _say(number: int) -> None:
    """Name the signal, unless the command has said something since."""
    console: Any = sys.modules.get("fewlabels.cli.console")
    if console is None or not _received_at or console.said_at[0] < _received_at[0]:
        with suppress(OSError):  # at once, whatever Python's own streams are doing
            os.write(2, f"fewlabels: {SIGNALS[signal.Signals(number)]}.\n".encode())


def _end(code: int) -> NoReturn:
    """Exit without waiting for threads, which could take long."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
