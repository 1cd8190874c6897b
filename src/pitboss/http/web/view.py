"""One request for a page: who asks, for what, and the URLs that lead on."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from pitboss.engines.protocol import FullStore
from pitboss.http.access import ROLES, Roles
from pitboss.http.context import Call
from pitboss.http.routes import template_of
from pitboss.http.web.access import PAGES
from pitboss.http.web.readings import Readings
from pitboss.model.duration import Moment
from pitboss.operate.status import Status, read_status

UI = "/ui"
ACT = "/act"


class View:
    """`places` are the values of the braces in the page's path, `query` the parameters of the URL,
    `paths` those of the pages that exist."""

    def __init__(
        self,
        call: Call,
        readings: Readings,
        *,
        prefix: str,
        path: str,
        query: Mapping[str, str],
        theme: str = "",
        paths: frozenset[str] = frozenset(),
    ) -> None:
        self.call, self.readings, self.prefix = call, readings, prefix
        self.path, self.query, self.theme, self._paths = path, query, theme, paths
        self.places: Mapping[str, str] = {}

    def exists(self, path: str) -> bool:
        """Whether there is such a page ("/queues/{name}"), so that a link may lead to it."""
        return path in self._paths

    def sees(self, path: str) -> bool:
        """Whether the caller's role may see this page."""
        roles = PAGES[path]
        return not roles or not self.call.caller.roles.isdisjoint(roles)

    @property
    def store(self) -> FullStore:
        return self.call.store

    @property
    def now(self) -> Moment:
        return self.call.now

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        return self.url(self.path, **self.query)

    def url(self, path: str, /, **query: Any) -> str:
        """The only way to an address: `path` is below /ui and may have any text between its slashes. Parameters that
        are None or empty are left out."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.prefix}{UI}{quote(path, safe='/~:@!$&()*+,;=')}" + (f"?{urlencode(given)}" if given else "")

    def again(self, **query: Any) -> str:
        """This page with other parameters; None takes one away."""
        return self.url(self.path, **{**self.query, **query})

    def act(self, path: str, /) -> str:
        """Where a form posts, for a route of the API such as "/queues/mail/pause"."""
        return self.url(f"{ACT}{path}")

    def may(self, method: str, path: str) -> bool:
        """Whether the caller's role may use this route of the API: buttons that it may not use are left out."""
        return not self.call.caller.roles.isdisjoint(_roles(method, path))

    async def status(self) -> Status:
        """The verdict with the figures behind it, shared with other pages of this second."""

        async def read() -> Status:
            return await read_status(self.store, self.now, self.call.server.release)

        return await self.readings.get("status", read)


@cache
def _templates(method: str) -> tuple[tuple[str, Roles], ...]:
    return tuple((path, roles) for (verb, path), roles in ROLES.items() if verb == method)


def _roles(method: str, path: str) -> Roles:
    """Those of the route that fits, and has the most words of its own; none if a name in the path is no name that a
    route takes."""
    fitting = [(path_, roles) for path_, roles in _templates(method) if template_of(path_).fullmatch(path)]
    return min(fitting, key=lambda one: one[0].count("{"))[1] if fitting else frozenset()
