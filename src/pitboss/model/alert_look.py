"""One look of the leader at all alerts, as a pure function: its notes before and after, and what is to be sent."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from pitboss.model.alert import DEFAULT_WINDOW, AlertRule, AlertState, Phase, Silence, silenced, stepped
from pitboss.model.alert_counters import Counters
from pitboss.model.alert_digest import Alert, ChannelState, next_message, not_told
from pitboss.model.alert_facts import CONDITIONS, AlertFacts
from pitboss.model.alert_message import AlertMessage, ChannelSpec
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span

_NO_STATE = AlertState()
# After this long without a look, what has to last begins anew: whether it lasted is not known.
_PAUSE: Span = 30 * SECOND


class ChannelNote(msgspec.Struct, frozen=True, kw_only=True):
    """A channel as other processes see it: without what is secret. `handler` gets its messages."""

    type: str
    handler: str = ""


class AlertNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader knows, so that the next one goes on: it is stored with each look. `at` is the last look, `store`
    the name of the store in messages."""

    at: Moment = 0
    rules: tuple[AlertRule, ...] = ()
    channels: dict[str, ChannelNote] = {}
    alerts: dict[str, AlertState] = {}
    told: dict[str, ChannelState] = {}
    store: str = ""
    counters: Counters = Counters()

    def alert(self, rule: str) -> AlertState:
        return self.alerts.get(rule, _NO_STATE)


class AlertBoard(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of alerts: the notes as JSON (None: none yet), the number of their last change, and the
    silences that have not ended."""

    notes: Json | None = None
    version: int = 0
    silences: tuple[Silence, ...] = ()


class Look(NamedTuple):
    """The notes after a look, and the messages to send. `began` and `ended` are rules whose alert fires since this
    look, or does not any more."""

    notes: AlertNotes
    messages: tuple[tuple[ChannelSpec, AlertMessage], ...]
    began: tuple[AlertRule, ...]
    ended: tuple[AlertRule, ...]


def looked(
    notes: AlertNotes,
    spec: AlertsSpec,
    silences: Iterable[Silence],
    facts: AlertFacts,
    *,
    unheard: Collection[str] = (),
) -> Look:
    """Judge every rule by the facts, and decide what each channel is told, but for `unheard` ones: they are told when
    they can be."""
    now = facts.now
    shortest = min((one.window for one in spec.rules), default=DEFAULT_WINDOW)
    counters = notes.counters.counted(facts.totals, now, longest=spec.longest, shortest=shortest)
    if now - notes.at > _PAUSE:
        notes = _after_pause(notes)
    states = {
        rule.name: stepped(notes.alert(rule.name), rule, CONDITIONS[rule.condition].measure(facts, counters, rule), now)
        for rule in spec.rules
    }
    quiet = silenced(silences, now)
    alerts = {rule.name: Alert(rule, states[rule.name], rule.name in quiet) for rule in spec.rules}
    told, messages = _told(notes, spec, alerts, unheard, now)
    after = AlertNotes(
        at=now,
        rules=spec.rules,
        channels={one.name: ChannelNote(type=one.type, handler=one.handler) for one in spec.channels},
        alerts=states,
        told=told,
        store=spec.store,
        counters=counters,
    )
    before = {name for name, one in notes.alerts.items() if one.phase is Phase.FIRING}
    # A rule that the settings no longer have ends too.
    known = {rule.name: rule for rule in (*notes.rules, *spec.rules)}
    firing = {name for name, one in states.items() if one.phase is Phase.FIRING}
    return Look(
        after,
        messages,
        tuple(rule for rule in spec.rules if rule.name in firing - before),
        tuple(rule for name, rule in known.items() if name in before - firing),
    )


def _after_pause(notes: AlertNotes) -> AlertNotes:
    alerts = {name: msgspec.structs.replace(one, above={}) for name, one in notes.alerts.items()}
    return msgspec.structs.replace(notes, alerts=alerts)


def _told(
    notes: AlertNotes, spec: AlertsSpec, alerts: Mapping[str, Alert], unheard: Collection[str], now: Moment
) -> tuple[dict[str, ChannelState], tuple[tuple[ChannelSpec, AlertMessage], ...]]:
    told, messages = dict[str, ChannelState](), list[tuple[ChannelSpec, AlertMessage]]()
    for channel in spec.channels:
        own = {name: one for name, one in alerts.items() if channel.name in spec.channels_of(one.rule)}
        before = notes.told.get(channel.name, ChannelState())
        if channel.name in unheard:
            told[channel.name] = not_told(before, own)
            continue
        told[channel.name], message = next_message(before, own, now, digest=spec.digest)
        if message is not None:
            messages.append((channel, message))
    return told, tuple(messages)


def read_notes(text: Json | None) -> AlertNotes:
    """Empty if there are none, or those of a release that we cannot read."""
    try:
        return msgspec.json.decode(text, type=AlertNotes) if text else AlertNotes()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return AlertNotes()


def notes_text(notes: AlertNotes) -> Json:
    return msgspec.json.encode(notes).decode()
