"""Hot statements use the index that was made for them, also where SQLite has no statistics."""

import re
import sqlite3
from collections.abc import Iterator

import pytest

from pitboss.engines.sqlite.act import Statements
from pitboss.engines.sqlite.schema import upgrade

HOT = {
    "claim_next": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_next_of": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_ranks": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_named": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "claim_again": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_repeatable (claim_key=?)",
    "claim_queues": "SEARCH known USING COVERING INDEX pitboss_handlers_by_queue (queue=?)",
    "claim_sift": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=?)",
    "claim_due_at": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_scheduled (queue=?)",
    "claim_due": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_scheduled (queue=? AND run_at<?)",
    "claim_take": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "claim_queue": "SEARCH pitboss_queues USING PRIMARY KEY (name=?)",
    "settle_read": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
    "settle_completed": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "settle_plainly": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_running (session=? AND id=?)",
    "settle_end": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "session_cancels": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_to_cancel (session=?)",
    "reclaim_orphans": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_running (session=?)",
    "reclaim_ran_out": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_limited (claim_expires_at<?)",
    "reclaim_lose": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "reclaim_end": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "request_forget": "SEARCH pitboss_requests USING COVERING INDEX pitboss_requests_by_time (at<?)",
    "audit_list_before": "SEARCH pitboss_audit USING PRIMARY KEY (id<?)",
    "held_list": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_unknown (handler=?)",
    "put_met_ids": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
    "put_met_keys": "SEARCH pitboss_uniques USING PRIMARY KEY (key=?)",
    "key_free": "SEARCH pitboss_uniques USING PRIMARY KEY (key=?)",
    "start_count": "SEARCH pitboss_starts USING PRIMARY KEY (queue=? AND at>?)",
    "claim_begin": "SEARCH pitboss_batches USING COVERING INDEX pitboss_batches_by_status (status=?)",
    "claim_take_each": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "claim_bound": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=? AND (priority,id)>(?,?))",
    "claim_due_items": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_scheduled (queue=? AND run_at<?)",
    "claim_held": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_running (session=? AND id=?)",
    "member_wake": "SEARCH pitboss_resources USING INDEX pitboss_resources_away (pool=? AND available_at<?)",
    "member_ready": "SEARCH pitboss_resources USING INDEX pitboss_resources_ready "
    "(pool=? AND (rank,last_used_at,name)>(?,?,?))",
    "member_read": "SEARCH pitboss_resources USING INTEGER PRIMARY KEY (rowid=?)",
    "member_read_named": "SEARCH pitboss_resources USING INDEX sqlite_autoindex_pitboss_resources_1 "
    "(pool=? AND name=?)",
    "member_write": "SEARCH pitboss_resources USING INTEGER PRIMARY KEY (rowid=?)",
    "member_blacklisted": "SEARCH pitboss_resources USING INDEX pitboss_resources_blacklisted "
    "(pool=? AND blacklisted_until>?)",
    "pool_shortage": "SEARCH pitboss_resources USING INDEX pitboss_resources_away (pool=?)",
    "pool_queues": "SCAN pitboss_handlers USING COVERING INDEX pitboss_handlers_bound",
    "use_at": "SEARCH pitboss_uses USING PRIMARY KEY (resource=? AND seq=?)",
    "use_forget": "SEARCH pitboss_uses USING PRIMARY KEY (resource=? AND seq=?)",
    "binding_get": "SEARCH pitboss_bindings USING PRIMARY KEY (pool=? AND key=?)",
    "binding_forget": "SEARCH pitboss_bindings USING COVERING INDEX pitboss_bindings_by_end (until<?)",
    "strike_list": "SEARCH pitboss_strikes USING PRIMARY KEY (pool=? AND destination=?)",
    "strike_forget_old": "SEARCH pitboss_strikes USING COVERING INDEX pitboss_strikes_by_time (at<?)",
    "lease_list_over": "SEARCH pitboss_leases USING INDEX pitboss_leases_by_end (until<?)",
    "batch_draw_open": "SEARCH pitboss_batches USING COVERING INDEX pitboss_batches_by_status (status=?)",
    "batch_draw_items": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_undrawn (batch=? AND queue=?)",
    "batch_next": "SEARCH pitboss_batches USING INDEX pitboss_batches_by_status (status=? AND lane=?)",
    "batch_last_rank": "SEARCH pitboss_batches USING INDEX pitboss_batches_in_line (lane=?)",
    "batch_count_states": "SEARCH pitboss_batch_counts USING PRIMARY KEY (batch=?)",
    "batch_recent": "SEARCH pitboss_tasks USING COVERING INDEX pitboss_tasks_items_ended (batch=? AND finished_at>?)",
    "batch_drawn": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_items (batch=? AND state=?)",
    "batch_hold": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_items (batch=? AND state=?)",
    "order_taken": "SEARCH pitboss_order_heads USING PRIMARY KEY (key=?)",
    "order_following": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_in_order (order_key=?)",
    "order_end": "SEARCH pitboss_order_heads USING PRIMARY KEY (key=?)",
    "order_release": "SEARCH pitboss_tasks USING INTEGER PRIMARY KEY (rowid=?)",
    "handler_list_routed": "SCAN pitboss_handlers USING INDEX pitboss_handlers_routed",
    "schedule_due": "SEARCH pitboss_schedules USING INDEX pitboss_schedules_due (next_at>? AND next_at<?)",
    "schedule_next": "SEARCH pitboss_schedules USING INDEX pitboss_schedules_due (next_at>?)",
    "schedule_read": "SEARCH pitboss_schedules USING INDEX sqlite_autoindex_pitboss_schedules_1 (name=?)",
    "schedule_advance": "SEARCH pitboss_schedules USING INTEGER PRIMARY KEY (rowid=?)",
    "schedule_list_of": "SEARCH pitboss_schedules USING INDEX pitboss_schedules_by_app (app=?)",
    "schedule_list_after": "SEARCH pitboss_schedules USING INDEX sqlite_autoindex_pitboss_schedules_1 (name>?)",
    "event_met": "SEARCH pitboss_events USING INDEX sqlite_autoindex_pitboss_events_1 (id=?)",
    "event_list": "SEARCH pitboss_events USING INDEX sqlite_autoindex_pitboss_events_1 (id<?)",
    "event_list_of": "SEARCH pitboss_events USING INDEX pitboss_events_by_name (name=? AND id<?)",
    "event_forget": "SEARCH pitboss_events USING COVERING INDEX pitboss_events_by_time (published_at<?)",
    "happening_list": "SEARCH pitboss_happenings USING PRIMARY KEY (id>? AND id<?)",
    "happening_forget": "SEARCH pitboss_happenings USING PRIMARY KEY (id<?)",
    "audit_forget": "SEARCH pitboss_audit USING PRIMARY KEY (id<?)",
    "task_before": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_pending (queue=? AND (priority,id)<(?,?))",
    "task_get": "SEARCH pitboss_tasks USING INDEX sqlite_autoindex_pitboss_tasks_1 (id=?)",
    "settle_begin": "SCAN pitboss_queues USING INDEX pitboss_queues_capped",
    "claim_look": "SEARCH first USING INDEX pitboss_tasks_pending (queue=? AND (priority,id)>(?,?))",
    "claim_look_key": "SEARCH pitboss_tasks USING INDEX pitboss_tasks_keyed "
    "(queue=? AND state=? AND partition=? AND (priority,id)>(?,?))",
    "claim_own_keys": "SEARCH task USING COVERING INDEX pitboss_tasks_keyed "
    "(queue=? AND state=? AND partition=? AND (priority,id)>(?,?))",
    "draw_look": "SEARCH first USING INDEX pitboss_tasks_undrawn (batch=? AND queue=? AND (priority,id)>(?,?))",
    "draw_pending": "SEARCH pitboss_tasks USING COVERING INDEX pitboss_tasks_keyed_items "
    "(batch=? AND queue=? AND state=? AND partition>?)",
    "draw_own": "SEARCH own USING INDEX pitboss_partitions_owned (queue=? AND owner=?)",
    "draw_all": "SEARCH next USING INDEX pitboss_tasks_keyed_undrawn "
    "(batch=? AND queue=? AND partition=? AND (priority,id)>(?,?))",
    "partition_list_moving": "SEARCH pitboss_partitions USING INDEX pitboss_partitions_moving (queue=?)",
    "partition_list_named": "SEARCH task USING COVERING INDEX pitboss_tasks_keyed "
    "(queue=? AND state=? AND partition=?)",
    "partition_running": "SEARCH pitboss_tasks USING COVERING INDEX pitboss_tasks_keyed "
    "(queue=? AND state=? AND partition>?)",
    "partition_counts": "SEARCH pitboss_tasks USING COVERING INDEX pitboss_tasks_keyed "
    "(queue=? AND state=? AND partition>?)",
    "flow_oldest": "SEARCH pitboss_flows USING PRIMARY KEY (span=?)",
    "flow_take": "SEARCH pitboss_flows USING PRIMARY KEY (span=? AND at>? AND at<?)",
    "flow_list": "SEARCH pitboss_flows USING PRIMARY KEY (span=? AND at>? AND at<?)",
    "sample_list": "SEARCH pitboss_samples USING INDEX sqlite_autoindex_pitboss_samples_1 (span=? AND at>? AND at<?)",
    "slot_list_of": "SEARCH pitboss_slots USING COVERING INDEX pitboss_slots_by_session (session=?)",
}
# A recount is asked for by an operator, and reads every task.
RECOUNTS = {"maintenance_count", "maintenance_differences"}
# The newest entries of the log are read from its end, as many as are asked for.
FROM_THE_END = {"audit_list"}
# The first page of a list, as long as is asked for.
FROM_THE_BEGINNING = {"schedule_list", "failure_first"}
# Whether there is a row: the first one says it.
ANY_ROW = {"settle_begin"}
NOT_BY_KEY = RECOUNTS | FROM_THE_END | FROM_THE_BEGINNING | ANY_ROW
LARGE = (
    "tasks|attempts|uniques|starts|uses|bindings|strikes|batch_counts|audit|requests|order_heads|schedules|events"
    "|partitions|happenings"
)


@pytest.fixture(scope="module")
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection)
    yield connection
    connection.close()


def plan(store: sqlite3.Connection, text: str) -> list[str]:
    numbered = set(re.findall(r"\?\d+", text))
    values = ["[]"] * (len(numbered) + len(re.findall(r"\?(?!\d)", text)))
    return [row[3] for row in store.execute(f"EXPLAIN QUERY PLAN {text}", values)]


@pytest.mark.parametrize("name", sorted(HOT))
def test_a_hot_statement_uses_its_index(store: sqlite3.Connection, name: str) -> None:
    assert HOT[name] in plan(store, Statements().by_name[name])


@pytest.mark.parametrize("name", sorted(Statements().by_name.keys() - NOT_BY_KEY))
def test_no_statement_reads_a_whole_large_table_or_sorts_it(store: sqlite3.Connection, name: str) -> None:
    steps = plan(store, Statements().by_name[name])
    assert not any(re.match(rf"SCAN pitboss_({LARGE})\b", step) for step in steps), steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


def test_a_bulk_statement_is_the_same_statement_with_more_rows(store: sqlite3.Connection) -> None:
    statements = Statements()
    for name in (
        *("put_plain", "put_full", "settle_completed", "settle_end", "settle_progress", "count_add", "key_free"),
        *("claim_take_each", "member_write", "member_put", "use_add", "use_forget", "binding_set", "batch_count_add"),
        *("settle_plainly", "handler_add", "order_lead", "order_release", "schedule_put", "schedule_advance"),
        *("event_add", "happening_add", "put_keyed", "partition_add", "partition_write", "slot_write"),
    ):
        shared = len(set(re.findall(r"\?\d+", statements.by_name[name])))
        places = len(re.findall(r"\?(?!\d)", statements.by_name[name]))
        assert statements.bulk(name, 1) == statements.by_name[name]
        assert len(re.findall(r"\?(?!\d)", statements.bulk(name, 3))) == 3 * places
        store.execute(f"EXPLAIN {statements.bulk(name, 256)}", [None] * (shared + 256 * places))
