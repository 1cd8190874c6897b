"""The JSON documents of every face. Moments are RFC 3339 in UTC, spans are seconds, params and results are values."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from pitboss.model.access import ApiKey, AuditEntry
from pitboss.model.batch import Lane
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.eta import Range, spoken_range
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView, WorkerPoolView
from pitboss.model.limits import Window
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.pool_rules import value_text
from pitboss.model.queue import Queue, QueueSettings
from pitboss.model.resource import Condition, Entry, Limits, PoolRules, ResourcePool
from pitboss.model.retention import FOREVER
from pitboss.model.schedule_findings import ScheduleFigures
from pitboss.model.session import Session
from pitboss.model.snapshot import CurrentTask, PoolFigures, WorkerFigures, read
from pitboss.model.supply import steady
from pitboss.model.task import Attempt, Task
from pitboss.model.text import HIDDEN
from pitboss.model.waiting import Why, spoken_place, spoken_start
from pitboss.operate.origin import origin_document

# Only for types: every command loads this module, and none of them needs all of the others.
if TYPE_CHECKING:
    from pitboss.operate.batches import BatchPage, BatchReading
    from pitboss.operate.desired_state import StoredState
    from pitboss.operate.failures import FailureGroup
    from pitboss.operate.partitions import PartitionsReading, Validation
    from pitboss.operate.pool_rules import RuleReading
    from pitboss.operate.resources import MemberPage, MemberReading, ResourcePoolReading
    from pitboss.operate.stacks import StackReading
    from pitboss.operate.tasks import TaskPage
    from pitboss.operate.workers import ManagersReading

Document = dict[str, Any]
_MOMENTS = (
    "created_at",
    "run_at",
    "expires_at",
    "started_at",
    "finished_at",
    "ended_at",
    "paused_at",
    "opened_at",
    "opens_at",
    "claim_expires_at",
)
_SPANS = ("bound_for", "cooldown", "cooldown_cap", "blacklist", "blacklist_cap")


def utc(moment: Moment | None) -> str | None:
    """A moment in RFC 3339."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def findings_document(findings: Sequence[Finding]) -> Document:
    counts = Counter(finding.grade for finding in findings)
    return {
        "problems": counts[Grade.PROBLEM],
        "warnings": counts[Grade.WARNING],
        "checks": [msgspec.to_builtins(finding) for finding in findings],
    }


def task_document(task: Task) -> Document:
    found = _timed(msgspec.to_builtins(task))
    found["timeout"], found["claim_lasts"] = seconds_of(task.timeout), seconds_of(task.claim_lasts)
    found.pop("claim_key")
    found["params"] = from_json(task.params)
    found["result"] = None if task.result is None else from_json(task.result)
    found["meta"] = None if task.meta is None else from_json(task.meta)
    found["origin"] = origin_document(task)
    return found


def task_page_document(page: "TaskPage") -> Document:
    return {
        "task": task_document(page.task),
        **why_document(page.why),
        "attempts": [attempt_document(attempt) for attempt in page.attempts],
    }


def why_document(why: Why) -> Document:
    """`why` is the sentence, `starts` None if that is unknown."""
    return {
        "why": why.sentence,
        "cause": why.cause,
        "stuck": why.stuck,
        "starts": spoken_start(why) if why.gates else None,
        "helps": list(why.helps),
        "place": spoken_place(why),
        "before": why.before,
        "gates": [
            {
                "name": gate.name,
                "what": gate.what,
                "passed": gate.passed,
                "says": gate.says,
                "figure": gate.figure,
                "until": utc(gate.until),
            }
            for gate in why.gates
        ],
    }


def attempt_document(attempt: Attempt) -> Document:
    return _timed(msgspec.to_builtins(attempt))


def failure_group_document(group: "FailureGroup") -> Document:
    return {**msgspec.structs.asdict(group), "first": utc(group.first), "last": utc(group.last)}


def queue_document(queue: Queue) -> Document:
    found = _timed(msgspec.to_builtins(queue))
    found["rate"] = _rate_document(queue.rate)
    found["partitions"] = None if queue.partitions is None else partitioning_document(queue.partitions)
    if queue.declared is not None:
        found["declared"] = _queue_settings_document(queue.declared)
    return found


def partitioning_document(spec: Partitioning) -> Document:
    table = {str(number): list(keys) for number, keys in spec.table.items()}
    return {**msgspec.structs.asdict(spec), "table": table, "keys": list(spec.keys)}


def partition_document(one: Partition) -> Document:
    return {
        "key": one.key,
        "owner": one.owner,
        "moving_to": one.moving_to,
        "pinned": one.pinned,
        "epoch": one.epoch,
        "counts": {state.value: count for state, count in one.counts.items()},
    }


def partitions_document(reading: "PartitionsReading") -> Document:
    return {
        "queue": reading.queue.name,
        "partitions": partitioning_document(reading.spec),
        "max_per_key": reading.queue.max_per_key,
        "led": reading.led,
        "skew": reading.skew,
        "slots": [
            {
                "slot": one.name,
                "state": one.state,
                "worker": one.worker or None,
                "node": one.node or None,
                "host": one.host or None,
                "share": one.share,
                "keys": [partition_document(each) for each in one.keys],
            }
            for one in reading.slots
        ],
        "unowned": [
            {**partition_document(one.key), "cause": one.why.cause, "why": one.why.says} for one in reading.unowned
        ],
    }


def validation_document(found: "Validation") -> Document:
    return {
        "queue": found.queue,
        "valid": found.valid,
        "problems": list(found.problems),
        "facts": list(found.facts),
        "warnings": list(found.warnings),
        "skew": found.skew,
    }


def _queue_settings_document(declared: QueueSettings) -> Document:
    """An age of None is for ever."""
    ages = {state: None if age >= FOREVER else age / SECOND for state, age in declared.retention.items()}
    return {
        "capacity": declared.capacity,
        "rate": _rate_document(declared.rate),
        "max_per_key": declared.max_per_key,
        "retention": ages,
    }


def _rate_document(rate: Sequence[Window]) -> list[Document]:
    return [{"count": window.count, "seconds": window.per / SECOND} for window in rate]


def managers_document(reading: "ManagersReading") -> Document:
    def one(view: ManagerView, *, living: bool) -> Document:
        found = manager_document(view.session, living=living)
        if reading.pool is not None:
            found["workers"] = [worker for worker in found["workers"] if worker["pool"] == reading.pool]
            found["pools"] = [pool for pool in found["pools"] if pool["name"] == reading.pool]
        return found

    living = [one(view, living=True) for view in reading.living]
    return {"managers": [*living, *(one(view, living=False) for view in reading.gone)]}


def manager_document(session: Session, *, living: bool) -> Document:
    """A manager: its session and its latest snapshot."""
    info = session.info
    snapshot = read(session.snapshot)
    return {
        "session": session.number,
        "kind": info.kind,
        "host": info.host,
        "pid": info.pid,
        "alive": living,
        "opened_at": utc(session.opened_at),
        "expires_at": utc(session.expires_at),
        "handlers": list(info.handlers),
        "app": snapshot.target if snapshot else None,
        "queues": list(snapshot.queues) if snapshot and snapshot.queues is not None else None,
        "concurrency": snapshot.concurrency if snapshot else None,
        "release": snapshot.version if snapshot else None,
        "draining": snapshot.draining if snapshot else False,
        "term": snapshot.term or None if snapshot else None,
        "logs": snapshot.logs or None if snapshot else None,
        "http": msgspec.structs.asdict(snapshot.http) if snapshot and snapshot.http else None,
        "sources": msgspec.to_builtins(snapshot.delivery) if snapshot and snapshot.delivery else None,
        "pools": [_pool_figures(pool) for pool in snapshot.pools] if snapshot else [],
        "workers": [_worker(worker) for worker in snapshot.workers] if snapshot else [],
    }


def worker_pools_document(pools: Sequence[WorkerPoolView], stored: "StoredState") -> Document:
    orders = {key: _with_seconds(_timed(value), value.get("delay")) for key, value in stored.pools.items()}
    return {"pools": [_worker_pool(view) for view in pools], "orders": orders}


def _with_seconds(found: Document, delay: Any) -> Document:
    """The pause after a task, its least and its most, in seconds."""
    return found if delay is None else {**found, "delay": [one / SECOND for one in delay]}


def batch_document(reading: "BatchReading") -> Document:
    batch = reading.batch
    return {
        "id": batch.id,
        "name": batch.name,
        "lane": batch.lane,
        "status": batch.status,
        "position": batch.position,
        "total": batch.total,
        "finished": batch.finished,
        "left": batch.left,
        "done": reading.done,
        "run": batch.run,
        "percent": reading.percent,
        "counts": {state.value: count for state, count in batch.counts.items()},
        "queues": list(batch.queues),
        "recent": batch.recent,
        "starts": _range(reading.forecast.starts),
        "ends": _range(reading.forecast.ends),
        "waiting": reading.waiting,
        "created_at": utc(batch.created_at),
        "started_at": utc(batch.started_at),
        "finished_at": utc(batch.finished_at),
        "by": batch.by,
        "reason": batch.reason,
        "data": from_json(batch.data),
        "on_complete": None if batch.on_complete is None else batch.on_complete.handler,
    }


def batch_page_document(page: "BatchPage") -> Document:
    errors = [failure_group_document(group) for group in page.errors.groups]
    return {"batch": batch_document(page.reading), "errors": errors}


def lane_document(lane: Lane) -> Document:
    return dict(msgspec.structs.asdict(lane))


def resource_pool_document(reading: "ResourcePoolReading") -> Document:
    return {
        "name": reading.name,
        "members": len(reading.members),
        "conditions": {how.value: count for how in Condition if (count := reading.count(how))},
        "waiting": reading.shortage,
        "steady_per_second": None if reading.steady == float("inf") else reading.steady,
        "rules": _rules(reading.rules),
        "set_by": [_source(one) for one in reading.sources],
    }


def schedule_figures_document(found: ScheduleFigures) -> Document:
    return {
        "total": found.total,
        "paused": found.paused,
        "next_at": utc(found.next_at),
        "next": found.next_name,
        "overdue": list(found.overdue),
    }


def key_document(key: ApiKey) -> Document:
    """A key without the digest of its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "roles": [role.value for role in key.roles],
        "created_at": utc(key.created_at),
        "created_by": key.created_by,
        "revoked_at": utc(key.revoked_at),
    }


def stack_document(reading: "StackReading") -> Document:
    stack = reading.stack
    return {
        "id": reading.task.id,
        "handler": reading.task.handler,
        "host": reading.host,
        "worker": stack.worker,
        "at": utc(stack.at),
        "lines": list(stack.lines),
        "note": stack.note,
    }


def audit_document(entry: AuditEntry) -> Document:
    return {
        "id": entry.id,
        "at": utc(entry.at),
        "who": entry.who,
        "act": entry.act,
        "target": entry.target,
        "details": from_json(entry.details),
        "source": entry.source,
    }


def _source(rule: "RuleReading") -> Document:
    return {
        "key": rule.key,
        "value": value_text(rule.key, rule.value),
        "from": rule.source,
        "by": rule.by,
        "at": utc(rule.at or None),
        "declared": value_text(rule.key, rule.declared) if rule.source == "operator" else None,
    }


def member_document(reading: "MemberReading") -> Document:
    member, record = reading.member, reading.member.record
    return {
        "pool": member.pool,
        "name": member.name,
        "condition": reading.condition,
        "until": utc(reading.until),
        "why": reading.why,
        "enabled": member.enabled,
        "in_use": member.in_use,
        "available_at": utc(member.available_at or None),
        "fields": reading.fields,
        "secrets": dict.fromkeys(sorted(member.secrets), HIDDEN),
        "labels": list(member.labels),
        "weight": member.weight,
        "limits": _limits(reading.limits),
        "own_limits": member.limits is not None,
        "uses": record.uses,
        "ok": record.ok,
        "failed": record.failed,
        "refused": record.refused,
        "late": record.late,
        "failures_in_a_row": record.failures,
        "failed_by_comparison": reading.evidence.failed,
        "compared": reading.evidence.uses,
        "at_fault": reading.at_fault,
        "last_outcome": record.last_outcome,
        "last_error": record.last_error,
        "last_error_at": utc(record.last_error_at or None),
        "response_seconds": record.took / SECOND if record.took else None,
        "last_ok_at": utc(record.last_ok_at or None),
        "last_used_at": utc(reading.used_at),
        "open_until": utc(reading.open_until),
        "added_at": utc(member.added_at or None),
        "valid_until": utc(member.valid_until),
    }


def member_page_document(page: "MemberPage") -> Document:
    history = [_entry(one) for one in reversed(page.reading.member.record.history)]
    return {"member": member_document(page.reading) | {"held_by": list(page.held_by), "history": history}}


def _entry(entry: Entry) -> Document:
    return {
        "at": utc(entry.at),
        "what": entry.what,
        "why": entry.why,
        "until": utc(entry.until),
        "times": entry.times,
    }


def stages_document(pool: ResourcePool) -> Document:
    stages = {stage.value: count for stage, count in pool.stages.items()}
    return {"name": pool.name, "members": pool.members, "stages": stages, "next_at": utc(pool.next_at)}


def _pool_figures(pool: PoolFigures) -> Document:
    return _with_seconds(msgspec.to_builtins(pool), pool.delay)


def _worker(worker: WorkerFigures) -> Document:
    """A worker; figures that it never had are null."""
    found = dict(msgspec.to_builtins(worker))
    found["pid"] = worker.pid or None
    found["started_at"], found["active_at"] = utc(worker.started_at or None), utc(worker.active_at or None)
    found["mean"] = worker.mean / SECOND if worker.processed else None
    found["tasks"] = [_current(task) for task in worker.tasks]
    return found


def _current(task: CurrentTask) -> Document:
    return {"id": task.id, "handler": task.handler, "since": utc(task.since or None)}


def _worker_pool(view: WorkerPoolView) -> Document:
    return {
        "host": view.manager.host,
        "session": view.manager.number,
        **_pool_figures(view.pool),
        "state": view.state,
        "running": view.running,
        "workers": dict(Counter(worker.state.value for worker in view.workers)),
    }


def _range(found: Range | None) -> Document | None:
    if found is None:
        return None
    latest = None if found.latest is None else found.latest / SECOND
    return {"earliest": found.earliest / SECOND, "latest": latest, "text": spoken_range(found)}


def _rules(rules: PoolRules) -> Document:
    found = {key: value / SECOND if key in _SPANS else value for key, value in msgspec.structs.asdict(rules).items()}
    return found | {"limits": _limits(rules.limits)}


def _limits(limits: Limits) -> Document:
    rate = steady(limits)
    return {
        "windows": [{"count": window.count, "seconds": window.per / SECOND} for window in limits.windows],
        "min_delay": limits.min_delay / SECOND,
        "jitter": limits.jitter / SECOND,
        "delay_from": limits.delay_from,
        "concurrency": limits.concurrency,
        "guard": limits.guard / SECOND,
        "use_within": limits.use_within / SECOND,
        "steady_per_second": None if rate == float("inf") else rate,
    }


def seconds_of(span: Span | None) -> float | None:
    return None if span is None else span / SECOND


def _timed(values: Any) -> Document:
    return {key: utc(value) if key in _MOMENTS else value for key, value in values.items()}
