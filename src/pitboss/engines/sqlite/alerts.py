"""The notes of the leader about alerts, and the silences of operators."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.calls import Calls
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.alert import Silence
from pitboss.model.alert_look import AlertBoard
from pitboss.model.canonical import Json
from pitboss.model.duration import Span
from pitboss.model.task import NewTask


class AlertVerbs(Calls):
    """The protocol `Alerts`, each verb as one request to the store."""

    async def alert_board(self) -> AlertBoard:
        return await self._read(_board)

    async def note_alerts(self, notes: Json, tasks: Sequence[NewTask], *, version: int, term: int) -> bool:
        return await self._write("note_alerts", lambda act: _note(act, notes, tasks, version, term), len(tasks) + 1)

    async def silence_alert(self, rule: str, lasts: Span | None, *, by: str = "", reason: str = "") -> Silence | None:
        return await self._operate("silence_alert", lambda act: _silence(act, rule, lasts, by, reason))


def _board(reader: Reader) -> AlertBoard:
    silences = tuple(_silence_of(row) for row in reader.rows("silence_list", reader.now))
    for notes, version in reader.rows("alert_notes_get"):
        return AlertBoard(notes=notes, version=version, silences=silences)
    return AlertBoard(silences=silences)


def _note(act: Act, notes: Json, tasks: Sequence[NewTask], version: int, term: int) -> bool:
    check_term(act, term)
    written = act.run("alert_notes_set", notes, version) if version else act.run("alert_notes_begin", notes)
    if written:
        put_follow_ups(act, tasks)
    return bool(written)


def _silence(act: Act, rule: str, lasts: Span | None, by: str, reason: str) -> Silence | None:
    row: Any = act.one("silence_get", rule, act.now)
    act.run("silence_remove", rule, act.now)
    if lasts is None:
        return None if row is None else _silence_of(row)
    silence = Silence(rule=rule, until=act.now + lasts, at=act.now, by=by, reason=reason)
    act.run("silence_put", silence.rule, silence.until, silence.at, silence.by, silence.reason)
    return silence


def _silence_of(row: Sequence[Any]) -> Silence:
    rule, until, at, by, reason = row
    return Silence(rule=rule, until=until, at=at, by=by, reason=reason)
