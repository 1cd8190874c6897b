"""Alerts as people see them: which fire, how every rule is, silences, and a test of a channel."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from pitboss.engines.capabilities import alerts_of, capabilities
from pitboss.engines.protocol import Store
from pitboss.model.alert import AlertRule, AlertState, Phase, Severity, Silence
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.alert_look import AlertNotes, ChannelNote, read_notes
from pitboss.model.alert_message import FUNCTION, LOG, AlertMessage, Kind, alert_task, document
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput, NotDone, NotFound, TimedOutWaiting
from pitboss.model.filter import by
from pitboss.model.finding import Finding, problem, warning
from pitboss.model.ids import TaskId
from pitboss.model.new_task import TaskOptions, new_task
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task
from pitboss.model.text import listed
from pitboss.operate.audit import record
from pitboss.operate.documents import Document, utc

_LOOK_SECONDS = 0.1
_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1, Phase.QUIET: 2}
# Without a look for this long, no manager judges the rules.
_STALE: Span = 60 * SECOND
# How the reason of a failure begins for which the settings are not the cause.
_RECEIVER = ("the answer was 5", "the answer was 429", "no answer within")


class AlertReading(msgspec.Struct, frozen=True):
    """A rule, how its alert is, and its silence."""

    rule: AlertRule
    state: AlertState
    silence: Silence | None = None

    @property
    def shown_value(self) -> str:
        return "-" if self.state.value is None else CONDITIONS[self.rule.condition].shown(self.state.value)

    @property
    def shown_threshold(self) -> str:
        sign = "<" if self.rule.below else ">"
        return f"{sign} {CONDITIONS[self.rule.condition].shown(self.rule.threshold)}"


class AlertsReading(msgspec.Struct, frozen=True):
    """All rules, what fires first. `looked_at` None: no manager has looked yet. `ahead` makes moments of the store's
    clock those of the wall clock. `store` is its name in messages."""

    now: Moment
    ahead: Span
    looked_at: Moment | None
    alerts: tuple[AlertReading, ...]
    channels: dict[str, ChannelNote]
    store: str = ""

    @property
    def firing(self) -> list[AlertReading]:
        return [one for one in self.alerts if one.state.phase is Phase.FIRING]

    @property
    def stale(self) -> bool:
        """Whether no manager judges the rules now."""
        return self.looked_at is None or self.now - self.looked_at > _STALE


async def read_alerts(store: Store) -> AlertsReading:
    board = await alerts_of(store).alert_board()
    notes, silences = read_notes(board.notes), {one.rule: one for one in board.silences}
    known = [AlertReading(rule, notes.alert(rule.name), silences.get(rule.name)) for rule in _rules(notes)]
    now = store.clock.now()
    return AlertsReading(
        now=now,
        ahead=store.clock.wall() - now,
        looked_at=notes.at if board.notes is not None else None,
        alerts=tuple(sorted(known, key=_rank)),
        channels=notes.channels,
        store=notes.store,
    )


def _rank(one: AlertReading) -> tuple[int, int, str]:
    return _ORDER[one.state.phase], list(Severity).index(one.rule.severity), one.rule.name


def _rules(notes: AlertNotes) -> list[AlertRule]:
    """Without those of a release that has conditions that we do not know."""
    return [one for one in notes.rules if one.condition in CONDITIONS]


async def alert_findings(store: Store) -> list[Finding]:
    """What fires, for status and doctor; silenced alerts are left out."""
    if capabilities(store).alerts is None:
        return []
    found = await read_alerts(store)
    return [] if found.stale else list(_findings(found))


def _findings(found: AlertsReading) -> Iterator[Finding]:
    for one in found.firing:
        if one.silence is None:
            report = problem if one.rule.severity == "high" else warning
            yield report(
                "alerts",
                f"alert {one.rule.name} ({one.rule.severity}) is firing: {one.state.about}",
                why=f"{CONDITIONS[one.rule.condition].says} is {one.shown_threshold}",
                fix=f"remove the cause; pitboss alerts silence {one.rule.name} --for 2h silences it",
            )


async def silence_rule(store: Store, rule: str, lasts: Span, *, by: str, reason: str) -> Silence:
    """`NotFound` if no manager has such a rule."""
    if lasts <= 0:
        raise InvalidInput("a silence needs some time", why="it was 0", fix="say --for 2h")
    await _known_rule(store, rule)
    silence = await alerts_of(store).silence_alert(rule, lasts, by=by, reason=reason)
    assert silence is not None
    return silence


async def end_silence(store: Store, rule: str) -> Silence:
    """`NotFound` if the rule is not silenced."""
    ended = await alerts_of(store).silence_alert(rule, None)
    if ended is None:
        raise NotFound(f'the alert "{rule}" is not silenced', fix="pitboss alerts list shows silences")
    return ended


async def _known_rule(store: Store, rule: str) -> None:
    found = await read_alerts(store)
    names = [one.rule.name for one in found.alerts]
    if rule in names:
        return
    why = f"the rules are {listed(sorted(names), len(names))}" if names else "no manager has looked at alerts yet"
    raise NotFound(f'there is no alert "{rule}"', why=why, fix="correct the name, or start a manager with pitboss up")


async def send_test(store: Store, channel: str, make_id: Callable[[], TaskId], timeout: Span) -> None:
    """Send a test through the channel and wait until it is taken. `NotDone` says why it was not."""
    task = await _test_task(store, channel, make_id)
    await record(store)
    await store.put([task])
    found = await _ended(store, task.id, store.clock.now() + timeout)
    if found is None:
        await store.cancel(by(id=task.id), reason="the test took too long")
        raise TimedOutWaiting(
            f'the channel "{channel}" did not take the test in time',
            why="the process that sends, or the worker of a function, does not run, or the channel is slow",
            fix="look at pitboss ps; the test is withdrawn",
        )
    why = _failure(found.state, found.result, found.error.message if found.error is not None else "")
    if why:
        raise NotDone(f'the channel "{channel}" did not take the test', why=why, fix=_fix(why))


def _fix(why: str) -> str:
    if why.startswith(_RECEIVER):
        return "the settings lead to the receiver: mend it or wait, then test again"
    return "correct the channel's settings, then test again"


async def _ended(store: Store, task: TaskId, until: Moment) -> Task | None:
    while store.clock.now() < until:
        (found,) = await store.get([task])
        if found is not None and found.state.finished:
            return found
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _failure(state: State, result: str | None, error: str) -> str:
    if state is not State.COMPLETED:
        return error or f"it was {state}"
    said = from_json(result) if result else None
    return str(said.get("why") or "") if isinstance(said, dict) and said.keys() == {"why"} else ""


async def _test_task(store: Store, channel: str, make_id: Callable[[], TaskId]) -> NewTask:
    found = await read_alerts(store)
    note = found.channels.get(channel)
    if note is None:
        known = listed(sorted(found.channels)) if found.channels else "none: no manager has looked at alerts yet"
        raise NotFound(
            f'there is no channel "{channel}"',
            why=f"the channels of the leading manager are {known}",
            fix=f"write [alerts.channels.{channel}] into its settings, or correct the name",
        )
    if note.type == LOG:
        raise InvalidInput(
            f'the channel "{channel}" needs no test',
            why="the leading manager writes it to its own log",
            fix="pitboss logs manager shows it",
        )
    wall = found.now + found.ahead
    message = AlertMessage(kind=Kind.TEST, at=wall, store=found.store)
    if note.type != FUNCTION:
        return msgspec.structs.replace(alert_task(channel, message, found.now), id=make_id())
    handler = next((one for one in await store.handlers() if one.name == note.handler), None)
    if handler is None:
        raise NotFound(
            f'no app has declared the function "{note.handler}"',
            why=f'the channel "{channel}" is told to it',
            fix=f'declare it with @app.alert_channel("{note.handler}"), and start the app',
        )
    parameter = msgspec.json.decode(handler.about).get("alert_parameter") or "alert"
    return new_task(handler, to_json({parameter: document(message)}), make_id(), TaskOptions(max_attempts=1))


def alert_document(one: AlertReading, ahead: Span) -> Document:
    state, silence = one.state, one.silence
    return {
        "name": one.rule.name,
        "condition": one.rule.condition,
        "severity": one.rule.severity.value,
        "state": state.phase.value,
        "since": utc(state.since + ahead) if state.since else None,
        "about": state.about if state.phase is not Phase.QUIET else "",
        "value": state.value,
        "shown_value": one.shown_value,
        "threshold": one.rule.threshold,
        "shown_threshold": one.shown_threshold,
        "for": one.rule.lasting / SECOND,
        "channels": list(one.rule.channels),
        "action": one.rule.action,
        "only": list(one.rule.only),
        "fired": state.fired,
        "silence": None if silence is None else silence_document(silence, ahead),
    }


def silence_document(silence: Silence, ahead: Span) -> Document:
    return {
        "rule": silence.rule,
        "until": utc(silence.until + ahead),
        "at": utc(silence.at + ahead),
        "by": silence.by,
        "reason": silence.reason,
    }


def alerts_document(found: AlertsReading) -> Document:
    return {
        "looked_at": None if found.looked_at is None else utc(found.looked_at + found.ahead),
        "alerts": [alert_document(one, found.ahead) for one in found.alerts],
        "channels": [{"name": name, "type": one.type} for name, one in sorted(found.channels.items())],
    }
