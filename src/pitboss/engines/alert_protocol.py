"""Alerts: the notes of the leader, and the silences of operators."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.model.alert import Silence
from pitboss.model.alert_look import AlertBoard
from pitboss.model.canonical import Json
from pitboss.model.duration import Span
from pitboss.model.task import NewTask


@runtime_checkable
class Alerts(Protocol):
    """What is known of alerts. The leader alone judges and tells; its notes are stored, so that the next leader goes on
    where it stopped, and sends nothing twice."""

    async def alert_board(self) -> AlertBoard:
        """The notes with their version (0: there are none yet), and the silences that have not ended, by rule."""

    async def note_alerts(self, notes: Json, tasks: Sequence[NewTask], *, version: int, term: int) -> bool:
        """Replace the notes, whose version becomes one higher, and put the tasks, as follow-ups are put, all in one
        act. False, and nothing is written, if the version is not the present one. Only the leader of that term may do
        it: any other call raises `NotLeader` and writes nothing."""

    async def silence_alert(self, rule: str, lasts: Span | None, *, by: str = "", reason: str = "") -> Silence | None:
        """Silence a rule for so long from now on, instead of any silence before; None ends its silence. Returns the
        silence that was set, or ended; None if there was none to end. Silences that are over are forgotten."""
