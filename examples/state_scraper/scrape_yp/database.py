"""What the scraper stores beside Pitboss's tables, in the same database: listings, and how far each target is.

`python -m scrape_yp.database` makes the tables and the view `yp_targets`. The view stands on Pitboss's view of tasks,
whose columns stay.
"""

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import psycopg

from scrape_yp.settings import Settings
from scrape_yp.yp_filter import Listing, Target, Verdict

FIRST_PAGE = 1
_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS yp_listings (
        id text PRIMARY KEY, name text NOT NULL, state_id text NOT NULL, city text NOT NULL,
        categories text NOT NULL, phone text NOT NULL, website text NOT NULL,
        accepted boolean NOT NULL, reason text NOT NULL, target text NOT NULL
    )""",
    # `next_page` is NULL when the target is complete.
    """
    CREATE TABLE IF NOT EXISTS yp_pages (
        target text PRIMARY KEY, next_page integer, accepted integer NOT NULL, rejected integer NOT NULL
    )""",
)
_VIEW = """
    CREATE VIEW yp_targets AS
    SELECT id, {params} 'state_id' AS state_id, {params} 'city' AS city, {params} 'category' AS category, priority,
        CASE state
            WHEN 'completed' THEN 'done'
            WHEN 'running' THEN 'in_progress'
            WHEN 'failed' THEN 'failed'
            WHEN 'cancelled' THEN 'failed'
            ELSE 'planned'
        END AS status,
        attempts, worker, note, reason, {error} 'message' AS last_error
    FROM {tasks}
    WHERE queue = 'targets' AND handler = 'crawl_target'"""
_LISTING = """
    INSERT INTO yp_listings (id, name, state_id, city, categories, phone, website, accepted, reason, target)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
# A page that was stored before changes nothing: an attempt that was given up may still end.
_PAGE = """
    INSERT INTO yp_pages AS known (target, next_page, accepted, rejected) VALUES (?, ?, ?, ?)
    ON CONFLICT (target) DO UPDATE SET next_page = excluded.next_page,
        accepted = known.accepted + excluded.accepted, rejected = known.rejected + excluded.rejected
    WHERE known.next_page = ?"""


_LISTINGS = "SELECT id, accepted, reason FROM yp_listings ORDER BY id"


class Progress(NamedTuple):
    """How far a target is: the page that comes next (None: complete), and its listings so far."""

    next_page: int | None = FIRST_PAGE
    accepted: int = 0
    rejected: int = 0


class Database:
    """Each call is a transaction on a connection of its own: a restart of the server breaks none of the others."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_sqlite = url.startswith("sqlite:")

    def prepare(self) -> None:
        """Make the tables and the view. Pitboss's own tables must be there."""
        with self._transaction() as do:
            for statement in _TABLES:
                do(statement)
            do("DROP VIEW IF EXISTS yp_targets")
            do(self._view())

    def progress(self, target: Target) -> Progress:
        with self._transaction() as do:
            found = do("SELECT next_page, accepted, rejected FROM yp_pages WHERE target = ?", target.key)
        return Progress(*found[0]) if found else Progress()

    def store_page(
        self, target: Target, page: int, found: Sequence[tuple[Listing, Verdict]], next_page: int | None
    ) -> Progress:
        """Store a page of listings and the next page of the target, in one transaction. A listing is stored once."""
        accepted = sum(verdict.accepted for _, verdict in found)
        with self._transaction() as do:
            # In one order, or two workers could wait for each other.
            for listing, verdict in sorted(found):
                do(_LISTING, *_row(listing, verdict, target))
            do(_PAGE, target.key, next_page, accepted, len(found) - accepted, page)
        return self.progress(target)

    def listings(self) -> list[tuple[str, bool, str]]:
        """The stored listings: id, whether it was accepted, and if not, why."""
        with self._transaction() as do:
            return [(name, bool(accepted), reason) for name, accepted, reason in do(_LISTINGS)]

    def targets(self) -> list[tuple[Target, str]]:
        """Every target and its status."""
        with self._transaction() as do:
            rows = do("SELECT state_id, city, category, status FROM yp_targets")
        return [(Target(*row[:3]), row[3]) for row in rows]

    def statistics(self) -> dict[str, Counter[str]]:
        """How many targets of each state are planned, in progress, done and failed."""
        with self._transaction() as do:
            rows = do("SELECT state_id, status, count(*) FROM yp_targets GROUP BY state_id, status")
        found: dict[str, Counter[str]] = {}
        for state, status, count in rows:
            found.setdefault(state, Counter())[status] = count
        return found

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        if self._is_sqlite:
            with closing(sqlite3.connect(urlsplit(self._url).path[1:], timeout=30, isolation_level=None)) as file:
                # Not begun as a reader, which could not become a writer while another one writes.
                file.execute("BEGIN IMMEDIATE")
                with file:
                    yield lambda statement, *values: file.execute(statement, values).fetchall()
            return
        with psycopg.connect(self._url.partition("?")[0]) as server:

            def do(statement: str, *values: Any) -> list[tuple[Any, ...]]:
                done = server.execute(statement.replace("?", "%s").encode(), values or None)
                return done.fetchall() if done.description else []

            yield do

    def _view(self) -> str:
        if self._is_sqlite:
            return _VIEW.format(params="params ->>", error="error ->>", tasks="pitboss_task_view")
        (schema,) = parse_qs(urlsplit(self._url).query).get("schema", ["pitboss"])
        return _VIEW.format(params="params::json ->>", error="error::json ->>", tasks=f"{schema}.task_view")


def _row(listing: Listing, verdict: Verdict, target: Target) -> tuple[Any, ...]:
    known = (listing.id, listing.name, listing.state_id, listing.city, ", ".join(listing.categories))
    return (*known, listing.phone, listing.website, verdict.accepted, verdict.reason, target.key)


def main() -> int:
    Database(Settings().database_url).prepare()
    print("The tables yp_listings and yp_pages and the view yp_targets are ready.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
