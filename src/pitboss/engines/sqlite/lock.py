"""Standing in line: every writer of a file, in whatever process, takes this lock before its transaction.

SQLite's own waiting is a poll with growing sleeps: who sleeps longest loses, and one busy writer starves the rest. Here
the kernel wakes who waits. Two locks make a turnstile: to get `lock` one must hold `turn`, and lets go of `turn` only
then. So whoever has just released `lock` and wants it again finds the next one already standing in the turnstile.

`flock` and not POSIX record locks: those belong to the process, so two engines of one process would not exclude each
other, and closing any descriptor of the file would drop them. Both vanish with the process, however it dies.
The lock is about fairness only; correctness rests on SQLite's locks, which foreign programs respect too.
"""

import fcntl
import os
import threading
from pathlib import Path

from pitboss.model.errors import StoreUnavailable


class WriterLock:
    """One engine's place in line. Used by one thread."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self._folder, self._timeout = folder, timeout
        self._turn = self._opened("turn")
        self._lock = self._opened("lock")
        self._usher: _Usher | None = None

    def acquire(self) -> None:
        """Returns holding the lock, or raises `StoreUnavailable` after the time limit."""
        if self._usher is None or not self._usher.busy:
            if _taken(self._turn):
                got = _taken(self._lock)
                if got:
                    fcntl.flock(self._turn, fcntl.LOCK_UN)
                    return
            self._usher = self._usher or _Usher(self._turn, self._lock)
        if not self._usher.wait(self._timeout):
            raise StoreUnavailable(
                f"no turn to write within {self._timeout:g} s",
                why=f"another process holds {self._folder / 'lock'} all the time: it is stopped, or its disk hangs",
                fix="find it (fuser, lsof) and end it; the lock goes with the process",
            )

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._usher is not None and self._usher.busy:
            return  # its thread is inside a system call on these descriptors; they go with the process
        if self._usher is not None:
            self._usher.dismiss()
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: a copy of the descriptors would keep the lock taken after the parent died."""
        for descriptor in (self._turn, self._lock):
            os.close(descriptor)

    def _opened(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class _Usher:
    """Waits in the kernel, which knows no time limit, so that the writer can wait with one."""

    def __init__(self, turn: int, lock: int) -> None:
        self._turn, self._lock = turn, lock
        self._begin = threading.Semaphore(0)
        self._got = threading.Semaphore(0)
        self._mutex = threading.Lock()
        self._wanted = False
        self._over = False
        self.busy = False
        threading.Thread(target=self._run, name="pitboss-sqlite-usher", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        with self._mutex:
            self._wanted = True
            if not self.busy:
                self.busy = True
                self._begin.release()
        if self._got.acquire(timeout=timeout):
            return True
        with self._mutex:
            if self.busy:
                self._wanted = False
                return False
        return self._got.acquire()

    def dismiss(self) -> None:
        self._over = True
        self._begin.release()

    def _run(self) -> None:
        while True:
            self._begin.acquire()
            if self._over:
                return
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            fcntl.flock(self._turn, fcntl.LOCK_UN)
            with self._mutex:
                self.busy = False
                if self._wanted:
                    self._got.release()
                else:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
