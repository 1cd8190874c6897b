"""What apps declare, and the settings of queues, which operators set above that.

Lock order: the lock on declarations, existing queues by name, schedules by name, new queues by name.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.postgres import schedules
from pitboss.engines.postgres.rows import flags, names, numbers, queue_settings, settings_text, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.declared import Declared, takes_over
from pitboss.model.duration import Moment
from pitboss.model.event import EventType, Subscription
from pitboss.model.partition import Partitioning, key_parts
from pitboss.model.queue import Queue, QueueChange, QueueSettings, changed_queue, declared_queue
from pitboss.model.schedule import added, present, redeclared, withdrawn

_encode = msgspec.json.Encoder().encode
_queues_of = msgspec.json.Decoder(dict[str, QueueSettings]).decode
_subscriptions_of = msgspec.json.Decoder(tuple[Subscription, ...]).decode
_events_of = msgspec.json.Decoder(tuple[EventType, ...]).decode


class _Owned(NamedTuple):
    """A locked queue, the app that declares it, and the moment at which it was read."""

    queue: Queue
    app: str | None
    now: Moment = 0


def declare(
    sql: Statements, declared: Declared, session: int | None, now: Moment | None, wall: Moment | None
) -> Script[bool]:
    """Store what an app declares, within a transaction; see `takes_over`."""
    app, fingerprint = declared.app, declared.fingerprint
    yield sql.ask("declare_lock").unheard()
    ((present, text, seen, alive),) = yield sql.ask("app_get", now, app=app)
    if session is not None:
        yield sql.ask("app_note_session", app=app, session=session, fingerprint=fingerprint).unheard()
    if (session is None and present is not None) or not takes_over(fingerprint, present, seen, alive):
        return bool(fingerprint == present)
    before = {} if text is None else _queues_of(text)
    known = yield from _locked(sql, {*before, *declared.queues}, now)
    yield from _declare_schedules(sql, declared, now, wall)
    yield from _declare_queues(sql, declared, before, known, now)
    yield sql.ask(
        "app_write",
        app=app,
        fingerprint=fingerprint,
        queues=_encode(declared.queues).decode(),
        subscriptions=_encode(declared.subscriptions).decode(),
        events=_encode(declared.events).decode(),
    ).unheard()
    return True


def declarations(rows: Sequence[Row]) -> list[Declared]:
    return [
        Declared(app=app, queues=_queues_of(queues), subscriptions=_subscriptions_of(wants), events=_events_of(events))
        for app, queues, wants, events in rows
    ]


def change_queue(sql: Statements, name: str, change: QueueChange, now: Moment | None) -> Script[None]:
    """Do what an operator wants, within a transaction."""
    yield sql.ask("queue_create", names=names([name])).unheard()
    known = yield from _locked(sql, [name], now)
    owned = known[name]
    yield from _write(sql, [owned._replace(queue=changed_queue(owned.queue, change, owned.now))])


def _declare_schedules(sql: Statements, declared: Declared, now: Moment | None, wall: Moment | None) -> Script[None]:
    steady, shown = yield from schedules.moments(sql, now, wall)
    wanted = {spec.name: spec for spec in declared.schedules}
    rows = yield sql.ask("schedule_lock_declared", app=declared.app, names=names(wanted))
    known = {schedule.name: schedule for schedule in (schedules.decoded(body) for (body,) in rows)}
    gone = [withdrawn(one, steady) for name, one in known.items() if name not in wanted and present(one)]
    after = [
        redeclared(known[name], spec, declared.app, shown, steady)
        if name in known
        else added(spec, declared.app, shown, steady)
        for name, spec in wanted.items()
    ]
    changed = gone + [schedule for schedule in after if schedule is not known.get(schedule.name)]
    if changed:
        yield schedules.writing(sql, changed).unheard()


def _declare_queues(
    sql: Statements, declared: Declared, before: Iterable[str], known: dict[str, _Owned], now: Moment | None
) -> Script[None]:
    """Declare the queues, and withdraw those that this app declared before and that no other app has taken."""
    new = declared.queues.keys() - known.keys()
    if new:
        yield sql.ask("queue_create", names=names(new)).unheard()
        known |= yield from _locked(sql, new, now)
    gone = [name for name in before if name in known and known[name].app == declared.app]
    changed = []
    for name in sorted({*gone, *declared.queues}):
        settings = declared.queues.get(name)
        queue = declared_queue(known[name].queue, settings)
        changed.append(_Owned(queue, None if settings is None else declared.app))
    yield from _write(sql, changed)


def _locked(sql: Statements, wanted: Iterable[str], now: Moment | None) -> Script[dict[str, _Owned]]:
    rows = yield sql.ask("queue_lock", now, names=names(wanted))
    return {row[0]: _Owned(queue_settings(row[:-2]), *row[-2:]) for row in rows}


def _write(sql: Statements, owned: Sequence[_Owned]) -> Script[None]:
    if not owned:
        return
    queues = [one.queue for one in owned]
    yield sql.ask(
        "queue_write",
        names=texts([one.name for one in queues]),
        paused=flags(one.paused for one in queues),
        paused_by=texts([one.paused_by for one in queues]),
        paused_at=numbers([one.paused_at for one in queues]),
        paused_reasons=texts([one.paused_reason for one in queues]),
        capacities=numbers([one.capacity for one in queues]),
        counts=texts([numbers([window.count for window in one.rate]) if one.rate else None for one in queues]),
        spans=texts([numbers([window.per for window in one.rate]) if one.rate else None for one in queues]),
        declared=texts([settings_text(one.declared) for one in queues]),
        limited=texts([texts(one.limited) for one in queues]),
        max_per_key=numbers([one.max_per_key for one in queues]),
        declared_by=texts([one.app for one in owned]),
        **_divided([one.partitions for one in queues]),
    ).unheard()


def _divided(specs: Sequence[Partitioning | None]) -> dict[str, object]:
    """What puts and claims must know of partitions."""
    parts = [() if spec is None else key_parts(spec.by) for spec in specs]
    return {
        "key_texts": texts([texts([text for text, _ in one]) if one else None for one in parts]),
        "key_names": texts([texts([name for _, name in one]) if one else None for one in parts]),
        "helped": texts([None if spec is None else _helped(spec) for spec in specs]),
    }


def _helped(spec: Partitioning) -> str:
    if not spec.exclusive:
        return "all"
    return "missing" if spec.on_missing == "steal" else "none"
