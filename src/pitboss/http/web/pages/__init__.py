"""The pages: one module each, which reads through `operate` and gives its template a plain context. It decides nothing.

A module has `PAGES`, a tuple of `Page`. It is found by itself; `web/access.py` says who may see its path.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from pitboss.http.web.view import View

Context = Mapping[str, Any]


class Page(NamedTuple):
    """`path` is below /ui. `topics` are what the page shows: it is read again when one of them changes (live.py)."""

    path: str
    title: str
    template: str
    read: Callable[[View], Awaitable[Context]]
    topics: tuple[str, ...] = ()
