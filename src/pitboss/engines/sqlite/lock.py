"""The lock of the writers: every writer of a store, in any process, takes it before its transaction.

SQLite's own waiting is a poll with growing sleeps: the writer that sleeps longest loses, and one busy writer starves
the rest. Here the kernel wakes the next waiter. There are two files: a writer must hold `turn` to take `lock`, and
releases `turn` only then. So a writer that wants `lock` again at once finds the next one already holding `turn`.

`flock` and not POSIX record locks: those belong to the process, so two engines of one process would not exclude each
other, and closing any descriptor of the file would drop them. Both kinds end with the process, however it dies.
The lock is about fairness only; correctness rests on SQLite's locks, which foreign programs respect too.
"""

import fcntl
import os
import threading
from pathlib import Path

from pitboss.model.errors import StoreUnavailable


class WriterLock:
    """The lock of one engine. Used by one thread at a time."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self._folder, self._timeout = folder, timeout
        self._turn = self._opened("turn")
        self._lock = self._opened("lock")
        self._waiter: _LockWaiter | None = None

    def acquire(self) -> None:
        """Returns holding the lock, or raises `StoreUnavailable` after the time limit."""
        if self._waiter is None or not self._waiter.busy:
            if _taken(self._turn):
                got = _taken(self._lock)
                if got:
                    fcntl.flock(self._turn, fcntl.LOCK_UN)
                    return
            self._waiter = self._waiter or _LockWaiter(self._turn, self._lock)
        if not self._waiter.wait(self._timeout):
            raise StoreUnavailable(
                f"could not get the write lock within {self._timeout:g} s",
                why=f"another process holds {self._folder / 'lock'} all the time: it is stopped, or its disk hangs",
                fix="find it (fuser, lsof) and end it; its lock ends with the process",
            )

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._waiter is not None and self._waiter.busy:
            return  # its thread is in a system call on these descriptors; they are closed when the process ends
        if self._waiter is not None:
            self._waiter.stop()
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: its copy of the descriptors would hold the lock after the parent died."""
        for descriptor in (self._turn, self._lock):
            os.close(descriptor)

    def _opened(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class _LockWaiter:
    """A thread that waits in the kernel without a time limit, so that the writer can wait with one."""

    def __init__(self, turn: int, lock: int) -> None:
        self._turn, self._lock = turn, lock
        self._begin = threading.Semaphore(0)
        self._got = threading.Semaphore(0)
        self._mutex = threading.Lock()
        self._wanted = False
        self._stopped = False
        self.busy = False
        threading.Thread(target=self._run, name="pitboss-sqlite-lock", daemon=True).start()

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

    def stop(self) -> None:
        self._stopped = True
        self._begin.release()

    def _run(self) -> None:
        while True:
            self._begin.acquire()
            if self._stopped:
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
