"""The notes of the leader about alerts, and the silences of operators."""

from collections.abc import Sequence

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.alert import Silence
from pitboss.model.alert_look import AlertBoard
from pitboss.model.canonical import Json
from pitboss.model.duration import Span
from pitboss.model.task import NewTask


class AlertVerbs(Verbs):
    """The protocol `Alerts`."""

    async def alert_board(self) -> AlertBoard:
        now = self.clock.now()
        silences = sorted((one for one in self.tables.silences.values() if one.until > now), key=lambda one: one.rule)
        notes, version = self.tables.alert_notes
        return AlertBoard(notes=notes, version=version, silences=tuple(silences))

    async def note_alerts(self, notes: Json, tasks: Sequence[NewTask], *, version: int, term: int) -> bool:
        self._reach("note_alerts.before")
        now = self.look()
        self.check_term(term, now)
        if self.tables.alert_notes[1] != version:
            return False
        self.tables.alert_notes = notes, version + 1
        for task in tasks:
            self.tables.place(task, now)
        self._reach("note_alerts.after")
        return True

    async def silence_alert(self, rule: str, lasts: Span | None, *, by: str = "", reason: str = "") -> Silence | None:
        now = self.clock.now()
        kept = {name: one for name, one in self.tables.silences.items() if one.until > now}
        silence = kept.pop(rule, None)
        if lasts is not None:
            silence = kept[rule] = Silence(rule=rule, until=now + lasts, at=now, by=by, reason=reason)
        self.tables.silences = kept
        self.audit()
        return silence
