"""The frames of a coroutine or a thread, as file, line and function: nothing of a task's values."""

import concurrent.futures.thread
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_MOST = 100
# Frames that mean nothing to the handler's author.
_OUR_FOLDER = str(Path(__file__).parent)
_OUR_FILES = (concurrent.futures.thread.__file__, threading.__file__)


def of_coroutine(coroutine: Any) -> tuple[str, ...]:
    """What it waits in, from the outside in."""
    return tuple(_lines(_awaited(coroutine)))


def of_thread(ident: int) -> tuple[str, ...]:
    """Where the thread is, from the outside in."""
    frames = list[FrameType]()
    frame = sys._current_frames().get(ident)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return tuple(_lines((one.f_code, one.f_lineno) for one in reversed(frames)))


def _awaited(waiting: Any) -> Iterator[tuple[CodeType, int]]:
    """A coroutine, what it awaits, what that awaits, and so on. Futures and the like have no code, and end it."""
    for _ in range(_MOST):
        kind = next((kind for kind in ("cr", "gi", "ag") if getattr(waiting, f"{kind}_frame", None)), None)
        if kind is None:
            return
        yield getattr(waiting, f"{kind}_code"), getattr(waiting, f"{kind}_frame").f_lineno
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _lines(frames: Iterable[tuple[CodeType, int]]) -> Iterator[str]:
    for code, line in frames:
        if code.co_filename not in _OUR_FILES and not code.co_filename.startswith(_OUR_FOLDER):
            yield f"{code.co_filename}:{line} in {code.co_qualname}"
