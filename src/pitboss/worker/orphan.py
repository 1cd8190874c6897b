"""A worker whose manager is gone ends, whatever its handlers are doing: nobody would hear what comes of them."""

import contextlib
import ctypes
import os
import select
import signal
import socket
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, end: socket.socket) -> None:
    """Two ways, because each has a gap: the kernel's signal on the parent's death, and the end of the socket.

    The socket is watched from a thread of its own: a handler may block the event loop for as long as it likes.
    """
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the socket has to do
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the signal was set
    threading.Thread(target=_watch, args=(end.fileno(),), name="pitboss-orphan", daemon=True).start()


def _watch(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
    while True:
        for _, event in poll.poll():
            if event:
                _end()


def _end() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with whatever processes the handlers started
    os._exit(1)
