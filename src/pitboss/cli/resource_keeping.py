"""An app of the command line's own: it seals and opens secrets with the keys of the store that a command is about."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pitboss.cli.screen import Screen
from pitboss.cli.store import settings
from pitboss.model.errors import InvalidInput

if TYPE_CHECKING:
    from pitboss.app import App


@contextmanager
def keeper(screen: Screen, store: str | None) -> "Iterator[App]":
    """Declares nothing and opens the store at the first call, and closes it."""
    from pitboss import config
    from pitboss.app import App

    found = settings(screen, store=store)
    url = found.settings.store
    if url.startswith("memory:"):
        raise InvalidInput(
            f"{url} cannot be changed from here",
            why="a store in memory lives and dies within one process",
            fix="name a SQLite file or a server with --store",
        )
    with App(url) as app:
        app.secrets_file = str(config.key_file(found))
        app.use(url)
        yield app
