"""Connections of members to HTTP servers, kept open between tasks of one process, and cookies of members."""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from http.cookiejar import CookieJar
from typing import Any

from pitboss.model.resource import Leased

MOST_MEMBERS = 100
_MOST_JARS = 1000


class Kept:
    """The open connections of one member: a transport of httpx, and how many requests it carries now."""

    def __init__(self, transport: Any, made_for: object) -> None:
        self.transport, self.made_for = transport, made_for
        self.requests = 0
        self.retired = False

    @property
    def is_over(self) -> bool:
        return self.retired and not self.requests


class Connections:
    """The connections of the members that were used last, of one event loop or of all threads."""

    def __init__(self, most: int = MOST_MEMBERS) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._end: AsyncIterator[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, leased: Leased, options: Hashable, make: Callable[[], Any]) -> tuple[Kept, list[Any]]:
        """The member's connections for one request, and transports that the caller closes.

        New secrets or a new address make new connections. If there are too many, those of the member that was not used
        for longest are given up, at the end of their last request.
        """
        key, made_for = (leased.id, options), (leased.fields, leased.secrets)
        with self._lock:
            kept, given_up = self._kept.get(key), []
            if kept is not None and kept.made_for != made_for:
                given_up.append(self._kept.pop(key))
                kept = None
            if kept is None:
                kept = self._kept[key] = Kept(make(), made_for)
            self._kept.move_to_end(key)
            kept.requests += 1
            while len(self._kept) > self._most:
                given_up.append(self._kept.popitem(last=False)[1])
            for one in given_up:
                one.retired = True
            return kept, [one.transport for one in given_up if one.is_over]

    def give_back(self, kept: Kept) -> list[Any]:
        """The end of a request; transports that the caller closes."""
        with self._lock:
            kept.requests -= 1
            return [kept.transport] if kept.is_over else []

    def empty(self) -> list[Any]:
        """Keep nothing any more; transports that the caller closes."""
        with self._lock:
            all_kept = [kept.transport for kept in self._kept.values()]
            self._kept.clear()
            return all_kept

    async def end_with_loop(self) -> None:
        """Close all connections when the running loop ends: `asyncio.run` closes async generators then."""
        if self._end is None:
            self._end = self._until_the_end()
            await anext(self._end)

    async def _until_the_end(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await aclose(self.empty())


class HttpConnections:
    """The kept connections and cookies of one app in one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.of_threads = Connections()
        self.tls: Any = None
        self._of_loops: dict[asyncio.AbstractEventLoop, Connections] = {}
        self._jars: OrderedDict[str, tuple[object, CookieJar]] = OrderedDict()
        self._lock = threading.Lock()

    def of_loop(self) -> Connections:
        """Those of the running event loop: a connection cannot move to another one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._of_loops.get(loop)
            if found is None:
                self._of_loops = {one: kept for one, kept in self._of_loops.items() if not one.is_closed()}
                found = self._of_loops[loop] = Connections()
            return found

    def jar(self, leased: Leased) -> CookieJar:
        """The cookies of a member, for all its tasks in this process. New secrets begin with none."""
        with self._lock:
            made_for, jar = self._jars.pop(leased.id, (None, None))
            if jar is None or made_for != (leased.fields, leased.secrets):
                made_for, jar = (leased.fields, leased.secrets), CookieJar()
            self._jars[leased.id] = made_for, jar
            while len(self._jars) > _MOST_JARS:
                self._jars.popitem(last=False)
            return jar

    def close(self) -> None:
        """Close the connections of threads. Those of a loop are closed when it ends."""
        close(self.of_threads.empty())


def close(transports: list[Any]) -> None:
    for transport in transports:
        # A connection that cannot be closed well is gone all the same.
        with suppress(Exception):
            transport.close()


async def aclose(transports: list[Any]) -> None:
    for transport in transports:
        with suppress(Exception):
            await transport.aclose()
