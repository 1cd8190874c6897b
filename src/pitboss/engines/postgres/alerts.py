"""The notes of the leader about alerts, and the silences of operators."""

from collections.abc import Sequence

from pitboss.engines.postgres.core_protocols import CoreProtocols
from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.put import put
from pitboss.engines.postgres.script import Row, Script, Statements, current
from pitboss.model.alert import Silence
from pitboss.model.alert_look import AlertBoard
from pitboss.model.canonical import Json
from pitboss.model.duration import Moment, Span
from pitboss.model.task import NewTask


class AlertProtocol(CoreProtocols):
    """The protocol `Alerts`."""

    async def alert_board(self) -> AlertBoard:
        now = self._now()
        return await self._reading.call(lambda: _board(self._sql, now))

    async def note_alerts(self, notes: Json, tasks: Sequence[NewTask], *, version: int, term: int) -> bool:
        self._reach("note_alerts.before")
        now = self._now()
        written = await self._writing.call(
            lambda: _note(self._sql, notes, tasks, version, term, now),
            transaction=True,
            before_commit=lambda: self._reach("note_alerts.commit"),
        )
        self._reach("note_alerts.after")
        return written

    async def silence_alert(self, rule: str, lasts: Span | None, *, by: str = "", reason: str = "") -> Silence | None:
        return await self._act(lambda now: _silence(self._sql, rule, lasts, by, reason, now))


def _board(sql: Statements, now: Moment | None) -> Script[AlertBoard]:
    silences = tuple(_silence_of(row) for row in (yield sql.ask("silence_list", now)))
    for notes, version in (yield sql.ask("alert_notes_get")):
        return AlertBoard(notes=notes, version=version, silences=silences)
    return AlertBoard(silences=silences)


def _note(
    sql: Statements, notes: Json, tasks: Sequence[NewTask], version: int, term: int, now: Moment | None
) -> Script[bool]:
    """Within a transaction. The leader's row is locked first, so that no other call writes the notes meanwhile."""
    yield from check_term(sql, now, term)
    if version:
        written = yield sql.ask("alert_notes_set", body=notes, version=version)
    else:
        written = yield sql.ask("alert_notes_begin", body=notes)
    if written and tasks:
        # They may overfill a queue.
        yield from put(sql, tasks, now, ring=True)
    return bool(written)


def _silence(
    sql: Statements, rule: str, lasts: Span | None, by: str, reason: str, now: Moment | None
) -> Script[Silence | None]:
    moment = yield from current(sql, now)
    gone = [_silence_of(row) for row in (yield sql.ask("silence_remove", rule=rule, moment=moment))]
    if lasts is None:
        return next((one for one in gone if one.rule == rule and one.until > moment), None)
    ((*row,),) = yield sql.ask("silence_put", rule=rule, lasts=lasts, moment=moment, by=by, reason=reason)
    return _silence_of(tuple(row))


def _silence_of(row: Row) -> Silence:
    rule, until, at, by, reason = row
    return Silence(rule=rule, until=until, at=at, by=by, reason=reason)
