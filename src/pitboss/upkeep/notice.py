"""Notices which managers were lost and which code runs: the leader's duty, so that the log has each once."""

from collections.abc import Iterable
from typing import Any, Protocol

from pitboss.engines.happening_protocol import Happenings
from pitboss.engines.protocol import Clock, Store
from pitboss.model import snapshot
from pitboss.model.canonical import from_json
from pitboss.model.duration import Moment
from pitboss.model.happening import HappeningId, Kind, Severity
from pitboss.model.ids import derived_id
from pitboss.model.session import Session
from pitboss.model.text import counted

NOTICE_SECONDS = 2.0
_LOOKED_AT = 100


class Note(Protocol):
    """Takes what happened, for the log."""

    def __call__(
        self,
        kind: Kind,
        subject: str,
        text: str,
        details: dict[str, Any] | None = None,
        *,
        severity: Severity | None = None,
        known: tuple[HappeningId, Moment] | None = None,
    ) -> None: ...


class Noticer:
    """The duty. It remembers what it has noted; what another leader noted before has the same id, or is in the log."""

    def __init__(self, engine: Store, log: Happenings, clock: Clock, note: Note) -> None:
        self._engine, self._log, self._clock, self._note = engine, log, clock, note
        self._lost: set[int] = set()
        # App -> the releases that were noted, the last one first, and those that ran at the last look.
        self._noted: dict[str, list[str]] = {}
        self._running: dict[str, set[str]] = {}

    async def notice(self, term: int) -> None:
        """Look once."""
        now = self._clock.now()
        sessions = [one for one in await self._engine.sessions() if one.info.kind == "manager"]
        alive = [one for one in sessions if one.alive(now)]
        self._notice_lost(sessions, alive)
        await self._notice_releases(alive)

    def _notice_lost(self, sessions: Iterable[Session], alive: Iterable[Session]) -> None:
        here = {_process(one) for one in alive}
        lost = {one.number: one for one in sessions if not one.ended and one not in alive}
        for number in lost.keys() - self._lost:
            # One whose session expired while it lives says so itself.
            if _process(lost[number]) not in here:
                note_lost(self._note, lost[number], lost[number].expires_at)
        self._lost = set(lost)

    async def _notice_releases(self, alive: Iterable[Session]) -> None:
        running: dict[str, dict[str, int]] = {}
        for session in alive:
            seen = snapshot.read(session.snapshot)
            if seen is not None and seen.release:
                running.setdefault(seen.app, {})[seen.release] = session.number
        for app, releases in running.items():
            noted = await self._noted_of(app)
            before = self._running.get(app)
            if before is None:
                # A new leader may begin during a rollout: then those that were noted ran already.
                before = set(noted) if len(releases) > 1 else set()
            for release, number in releases.items():
                if release not in before and release != noted[0]:
                    what = "another release" if noted[0] else "the first known release"
                    noted.insert(0, release)
                    self._note(
                        Kind.RELEASE_CHANGED,
                        f"app {app}",
                        f"{what} of app {app} runs: {release}, first in manager {number}",
                        {"release": release, "session": number},
                    )
        self._running = {app: set(releases) for app, releases in running.items()}

    async def _noted_of(self, app: str) -> list[str]:
        """The releases that were noted, the last one first."""
        if app not in self._noted:
            subject = f"app {app}"
            found = await self._log.happenings(kinds=[Kind.RELEASE_CHANGED], subject=subject, limit=_LOOKED_AT)
            self._noted[app] = [from_json(one.details)["release"] for one in found if one.subject == subject] or [""]
        return self._noted[app]


def note_lost(note: Note, session: Session, at: Moment) -> None:
    """A manager is gone without having ended its session. The same id, whichever manager notices."""
    info, seen = session.info, snapshot.read(session.snapshot)
    running = sum(worker.running for worker in seen.workers) if seen is not None else 0
    again = f"; {counted(running, 'running task')} of it will run again" if running else ""
    note(
        Kind.MANAGER_LOST,
        f"manager {session.number}",
        f"manager {session.number} on {info.host} (pid {info.pid}) is gone{again}",
        {"host": info.host, "pid": info.pid, "tasks": running},
        known=(derived_id(at, Kind.MANAGER_LOST, session.number), at),
    )


def _process(session: Session) -> tuple[str, str, int]:
    return session.info.host, session.info.boot_id, session.info.pid
