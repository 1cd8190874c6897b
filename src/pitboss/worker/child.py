"""What every child process of a manager does: exit with its manager, and load the app or say why it cannot."""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

from pitboss.worker.app_loading import load_app
from pitboss.worker.channel import BrokenMessage, encoded

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, end: socket.socket) -> None:
    """Exit as soon as the manager is gone, whatever the user's code is doing: the manager could not use its result.

    Two ways, because each has a gap: the kernel's parent-death signal, and the end of the socket. The socket is watched
    from a thread, because user code may block the event loop.
    """
    with contextlib.suppress(OSError, AttributeError):  # not Linux: only the socket is watched
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the signal was set
    threading.Thread(target=_watch, args=(end.fileno(),), name="pitboss-orphan", daemon=True).start()


def load_app_or_leave(target: str, end: socket.socket) -> Any:
    """The app. If it cannot be loaded, tell the manager why, and exit."""
    try:
        return load_app(target)
    except BaseException as error:  # the user's module may raise anything, SystemExit included
        text = "".join(traceback.format_exception(error))
        end.sendall(encoded([BrokenMessage(f"{type(error).__name__}: {error}", text)]))
        sys.stderr.write(text)
        leave(1)


def leave(code: int) -> NoReturn:
    """Exit at once: threads that never return and coroutines that ignore cancellation would keep the process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _watch(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
    while True:
        for _, event in poll.poll():
            if event:
                _end()


def _end() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with all processes that the user's code started
    os._exit(1)
