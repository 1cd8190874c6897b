"""Hot statements use the index that was made for them, also where SQLite has no statistics."""

import re
import sqlite3
from collections.abc import Iterator

import pytest

from pitboss.engines.sqlite.act import Statements
from pitboss.engines.sqlite.schema import upgrade

HOT = {
    "claim_next": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_sift": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_next_due": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_scheduled (queue=?)",
    "claim_promote": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_scheduled (queue=? AND run_at<?)",
    "claim_take": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "claim_lane": "SEARCH pitboss_queues USING PRIMARY KEY (name=?)",
    "settle_read": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
    "settle_completed": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "settle_plainly": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_running (session=? AND id=?)",
    "settle_moved": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "session_cancels": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_to_cancel (session=?)",
    "reclaim_orphans": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_running (session=?)",
    "held_of_handlers": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_held (handler=?)",
    "put_met_ids": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
    "put_met_keys": "SEARCH pitboss_uniques USING PRIMARY KEY (key=?)",
    "key_free": "SEARCH pitboss_uniques USING PRIMARY KEY (key=?)",
    "starts_since": "SEARCH pitboss_starts USING PRIMARY KEY (queue=? AND at>?)",
    "get": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
}
SMALL_TABLES = {"pitboss_queues", "pitboss_sessions", "pitboss_handlers", "pitboss_counts"}


@pytest.fixture(scope="module")
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection)
    yield connection
    connection.close()


def plan(store: sqlite3.Connection, text: str) -> list[str]:
    numbered = set(re.findall(r"\?\d+", text))
    values = ["[]"] * (len(numbered) or text.count("?"))
    return [row[3] for row in store.execute(f"EXPLAIN QUERY PLAN {text}", values)]


@pytest.mark.parametrize("name", sorted(HOT))
def test_a_hot_statement_uses_its_index(store: sqlite3.Connection, name: str) -> None:
    assert HOT[name] in plan(store, Statements().by_name[name])


@pytest.mark.parametrize("name", sorted(Statements().by_name))
def test_no_statement_reads_a_whole_large_table_or_sorts_it(store: sqlite3.Connection, name: str) -> None:
    steps = plan(store, Statements().by_name[name])
    assert not any(re.match(r"SCAN pitboss_(tasks|attempts|uniques|starts)\b", step) for step in steps), steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


def test_a_bulk_statement_is_the_same_statement_with_more_rows(store: sqlite3.Connection) -> None:
    statements = Statements()
    for name in ("put_plain", "put_full", "settle_completed", "settle_moved", "settle_progress", "count", "key_free"):
        places = statements.by_name[name].count("?")
        assert statements.bulk(name, 1) == statements.by_name[name]
        assert statements.bulk(name, 3).count("?") == 3 * places
        store.execute(f"EXPLAIN {statements.bulk(name, 256)}", [None] * 256 * places)
