"""How the sources of messages are, read from the sessions of delivery processes: for status and doctor."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.fleet import ManagerView
from pitboss.model.session import Session
from pitboss.model.snapshot import DeliveryFigures
from pitboss.model.source import SourceFigures, SourceState
from pitboss.model.text import counted, listed

KIND = "delivery"
# The name of these findings.
SOURCES = "sources"
MALFORMED = "malformed"
_WELL = frozenset({SourceState.STARTING, SourceState.RUNNING, SourceState.STANDBY})
_FIXES = {
    SourceState.REFUSED: "correct user, password or virtual host in the source's url, or give the user the right",
    SourceState.MISSING: 'create the queue in RabbitMQ, correct its name, or set create = "classic"',
    SourceState.UNROUTABLE: "create the queue or binding that the message is for; it is tried again by itself",
    SourceState.REJECTED: "consume from the full queue, or raise its x-max-length; it is tried again by itself",
    SourceState.AWAY: "start RabbitMQ, or correct the source's url; it connects by itself",
    SourceState.FULL: "nothing is lost: it goes on by itself; more workers, or a larger capacity, make room",
    SourceState.NO_HANDLER: "start the app that has the handler, or correct the source's handler",
    SourceState.STORE: "look at the store: pitboss doctor",
    SourceState.BLOCKED: "free memory or disk space of RabbitMQ's host; it goes on by itself",
    SourceState.SILENT: "if its manager is gone, start one: pitboss up; else its process is replaced by itself",
    SourceState.IN_USE: "stop the other consumer, or set competing = true to share the queue with it",
}
_LOOK = "pitboss sources"
_NAMED = 3
_SILENT = "its process gives no sign of life and is replaced within half a minute,"
_STARTING: Span = 10 * SECOND
# How long a source may take nothing before the store counts as unhealthy.
PATIENCE: Span = 10 * SECOND
# How long a malformed message is worth a person's look.
_LATELY: Span = 3600 * SECOND
# States in which messages are taken as fast as wanted, here or in another manager; and those that end by themselves.
_TAKEN = frozenset({SourceState.RUNNING, SourceState.STANDBY, SourceState.FULL})
_PASSING = _TAKEN | {SourceState.STARTING, SourceState.SILENT}


def live_sources(sessions: Iterable[Session], now: Moment) -> Iterator[tuple[Session, tuple[SourceFigures, ...]]]:
    """Each live delivery process with the figures of its sources; of one manager only the newest, because the session
    of a process that was killed lives on for a while."""
    living = [one for one in sessions if one.info.kind == KIND and one.alive(now)]
    told = [(one, read_figures(one.snapshot)) for one in living]
    newest: dict[tuple[str, int], int] = {}
    for session, figures in told:
        for manager in {one.manager for one in figures if one.manager}:
            key = session.info.host, manager
            newest[key] = max(newest.get(key, 0), session.number)
    for session, figures in told:
        if all(newest.get((session.info.host, one.manager), session.number) == session.number for one in figures):
            yield session, figures


def shown_sources(sessions: Iterable[Session], now: Moment) -> Iterator[tuple[Session, tuple[SourceFigures, ...]]]:
    """Each live delivery process with the figures of its sources, which are silent if it was killed: what it told last
    is not true any more, though its session lives on for a while."""
    for session, figures in live_sources(sessions, now):
        silent = session.overdue(now)
        why = f"its process on {session.info.host} has given no sign of life for {spoken(silent)}" if silent else ""
        yield session, tuple(_silenced(one, why) for one in figures) if silent else figures


def _silenced(one: SourceFigures, why: str) -> SourceFigures:
    silent = SourceState.SILENT
    return msgspec.structs.replace(one, state=silent, why=why, out_state=silent, out_why=why, ready=None)


def read_figures(text: str | None) -> tuple[SourceFigures, ...]:
    """Nothing of a release that we cannot read."""
    try:
        return msgspec.json.decode(text, type=tuple[SourceFigures, ...]) if text else ()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return ()


def source_findings(sessions: Iterable[Session], managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    """Every trouble of a source, and that all is well if there are sources."""
    for manager in managers:
        side = manager.snapshot.delivery
        if side is not None and side.why:
            yield problem(
                SOURCES,
                f"the delivery process of {manager.name} stays down: {side.why}",
                why=_waiting_for(side),
                fix="mend the cause, then reload or restart the manager",
            )
    figures = with_silent([one for _, found in shown_sources(sessions, now) for one in found], managers, now)
    served = {one.name for one in figures if one.state in _TAKEN}
    lacking = [one for one in figures if one.state is not SourceState.SILENT or one.name not in served]
    troubles = [*(found for one in lacking for found in _troubles(one))]
    yield from troubles
    if figures and not troubles:
        names = sorted({one.name for one in figures})
        yield fine(SOURCES, f"{counted(len(names), 'source')} of messages: {listed(names)}")
    yield from (_malformed(one, now) for one in figures if one.malformed and now - one.malformed_at < _LATELY)


def _waiting_for(side: DeliveryFigures) -> str:
    messages = [f"the messages of {listed(side.names)} wait in RabbitMQ"] if side.names else []
    alerts = [f"alerts for {listed(side.channels)} wait in the store"] if side.channels else []
    return "; ".join(messages + alerts)


def stuck_sources(sessions: Iterable[Session], managers: Sequence[ManagerView], now: Moment) -> tuple[str, str]:
    """A sentence about the sources whose messages no manager has taken for a while, and what helps; empty if there are
    none."""
    sides = [side for one in managers if (side := one.snapshot.delivery) is not None]
    figures = with_silent([one for _, found in shown_sources(sessions, now) for one in found], managers, now)
    by_name: dict[str, list[SourceFigures]] = {}
    for one in (*figures, *(down for side in sides if side.why for down in _down(side))):
        by_name.setdefault(one.name, []).append(one)
    hopeless = {name for side in sides if side.why or side.worn_out for name in side.names}
    stuck = [found[0] for name, found in by_name.items() if all(_is_stuck(one, name in hopeless, now) for one in found)]
    if not stuck:
        return "", ""
    first, names = stuck[0], listed([one.name for one in stuck], _NAMED)
    said = f'Source "{first.name}" takes no messages ({first.state}): {first.why.rstrip(".")}.'
    if len(stuck) > 1:
        said = f"{len(stuck)} of {len(by_name)} sources take no messages: {names}. {said}"
    return said, _FIXES.get(first.state, _LOOK)


def _down(side: DeliveryFigures) -> Iterator[SourceFigures]:
    """The sources of a process that stays down."""
    for name in side.names:
        yield SourceFigures(name=name, queue="", handler="", state=SourceState.SILENT, why=side.why)


def _is_stuck(one: SourceFigures, hopeless: bool, now: Moment) -> bool:
    if hopeless:
        return one.state not in _TAKEN
    return one.state not in _PASSING and now - one.since >= PATIENCE


def with_silent(figures: Sequence[SourceFigures], managers: Iterable[ManagerView], now: Moment) -> list[SourceFigures]:
    """The figures, and those of sources that should run and give no sign of life."""
    living = {one.name for one in figures}
    wanted = {
        name: manager
        for manager in managers
        if (side := manager.snapshot.delivery) is not None and not side.why
        # A process that has just been started has no session yet.
        if now - manager.session.opened_at > _STARTING
        for name in side.names
        if name not in living
    }
    return [
        *figures,
        *(
            SourceFigures(name=name, queue="", handler="", state=SourceState.SILENT, why=f"{_SILENT} on {manager.host}")
            for name, manager in sorted(wanted.items())
        ),
    ]


def _malformed(one: SourceFigures, now: Moment) -> Finding:
    bad, ago = counted(one.malformed, "malformed message"), spoken(max(now - one.malformed_at, SECOND))
    return warning(
        MALFORMED,
        f'source "{one.name}" put {bad} into its dead-letter queue, the last one {ago} ago: {one.malformed_why}',
        why="they became no tasks",
        fix=f"correct the producer, or the handler and then pitboss dead retry --source {one.name}",
    )


def _troubles(one: SourceFigures) -> Iterator[Finding]:
    if one.state not in _WELL:
        # A full queue is a limit at work, not a fault.
        grade = warning if one.state is SourceState.FULL else problem
        what = f'source "{one.name}" takes no messages ({one.state}): {one.why}'
        lost = "there is no such queue: RabbitMQ drops what producers publish to it, or tells them so"
        why = lost if one.state is SourceState.MISSING else "its messages wait in RabbitMQ"
        yield grade(SOURCES, what, why=why, fix=_FIXES.get(one.state, _LOOK))
    if one.out_state not in _WELL and (one.out_state, one.out_why) != (one.state, one.why):
        does = "cannot publish some messages" if one.out_some else "publishes nothing"
        what = f'source "{one.name}" {does} ({one.out_state}): {one.out_why}'
        waits = "its dead letters, and what was published to its broker, wait in the store"
        yield problem(SOURCES, what, why=waits, fix=_FIXES.get(one.out_state, _LOOK))
