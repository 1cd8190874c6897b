"""The leader's look at alerts: reads the facts, and stores its notes together with the messages that follow."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from pitboss.client.alert_facts import read_alert_facts
from pitboss.engines.alert_protocol import Alerts
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store
from pitboss.model.alert import Phase, Severity, silenced
from pitboss.model.alert_look import AlertNotes, Look, looked, notes_text, read_notes
from pitboss.model.alert_message import EXPIRES_IN, FUNCTION, AlertMessage, alert_task, document
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.canonical import to_json
from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.happening import Kind
from pitboss.model.happening import Severity as Happened
from pitboss.model.ids import derived_id
from pitboss.model.new_task import TaskOptions, new_task
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask
from pitboss.model.text import listed
from pitboss.upkeep.alert_actions import AlertActions
from pitboss.upkeep.notice import Note
from pitboss.upkeep.usual_sizes import UsualSizes

ALERT_SECONDS = 10.0


class Alerter:
    """The duty. `spec` returns the present settings (None: no alerts); `log` writes what the channel `log` is told, and
    `note` gets alerts that begin and end, for the log of happenings."""

    def __init__(
        self,
        store: Store,
        alerts: Alerts,
        spec: Callable[[], AlertsSpec | None],
        clock: Clock,
        *,
        log: Callable[[str], None],
        note: Note | None = None,
    ) -> None:
        self._store, self._alerts, self._spec, self._clock, self._log = store, alerts, spec, clock, log
        self._note = note
        self._actions = AlertActions(store, clock)
        self._usual = UsualSizes(capabilities(store).figures)
        self._term: int | None = None
        self._missing: set[str] = set()

    async def look(self, term: int) -> None:
        """Look once, under this term."""
        spec = self._spec()
        if spec is None:
            return
        answered, board = await self._answered(), await self._alerts.alert_board()
        handlers, notes = await self._usual.look(self._store.clock.now()), read_notes(board.notes)
        facts = await read_alert_facts(
            self._store, since=notes.counters.at, window=spec.longest, answered=answered, handlers=handlers
        )
        functions = await self._functions(spec)
        look = looked(notes, spec, board.silences, facts, unheard=_unheard(spec, functions))
        look = look._replace(notes=await self._actions.decided(notes, look))
        tasks = self._tasks(look, spec, functions)
        if await self._alerts.note_alerts(notes_text(look.notes), tasks, version=board.version, term=term):
            self._tell(look, term, notes, spec)
            self._tell_unheard(look, spec, functions, silenced(board.silences, facts.now))
            self._record(look, notes)
            await self._actions.follow(look.notes, facts.now)

    async def _answered(self) -> Span | None:
        """How long the store takes for a small write."""
        outages = capabilities(self._store).outages
        if outages is None:
            return None
        began = self._clock.now()
        await outages.probe()
        return self._clock.now() - began

    def _tasks(self, look: Look, spec: AlertsSpec, functions: Mapping[str, HandlerInfo]) -> list[NewTask]:
        """The messages as tasks. Those of the log need none."""
        tasks = list[NewTask]()
        for channel, said in look.messages:
            message = self._by_wall(said, spec)
            if channel.outside:
                tasks.append(alert_task(channel.name, message, look.notes.at))
            elif channel.type == FUNCTION:
                tasks.append(_function_task(functions[channel.handler], message, look.notes.at, channel.name))
        return tasks

    async def _functions(self, spec: AlertsSpec) -> dict[str, HandlerInfo]:
        """The handlers of the channels that are functions, as far as an app has declared them."""
        wanted = {one.handler for one in spec.channels if one.type == FUNCTION}
        return {one.name: one for one in await self._store.handlers() if one.name in wanted} if wanted else {}

    def _tell_unheard(
        self, look: Look, spec: AlertsSpec, functions: Mapping[str, HandlerInfo], quiet: Collection[str]
    ) -> None:
        """Alerts that no channel is told of; and once, which function is missing."""
        unheard = set(_unheard(spec, functions))
        for rule in look.began:
            if unheard.issuperset(spec.channels_of(rule)) and rule.name not in quiet:
                about = look.notes.alert(rule.name).about
                self._log(f"no channel was told: alert {rule.name} ({rule.severity}) is firing: {about}")
        missing = {one.handler for one in spec.channels if one.type == FUNCTION} - functions.keys()
        self._missing &= missing
        for name in sorted(missing - self._missing) if look.began else ():
            self._missing.add(name)
            self._log(f'the function "{name}" is told of alerts once an app declares it with @app.alert_channel')

    def _tell(self, look: Look, term: int, before: AlertNotes, spec: AlertsSpec) -> None:
        """What goes to the log. A new leader says what fires, because the log of the last one is elsewhere."""
        for channel, message in look.messages:
            if channel.type == "log":
                for line in self._by_wall(message, spec).lines:
                    self._log(f"alert {line.text}")
        if self._term != term:
            self._term = term
            firing = [name for name, one in before.alerts.items() if one.phase is Phase.FIRING]
            if firing:
                self._log(f"alerts that were firing when this manager began to lead: {listed(sorted(firing))}")

    def _record(self, look: Look, before: AlertNotes) -> None:
        """Into the log of happenings, also what is silenced."""
        if self._note is None:
            return
        for rule in look.began:
            found = Happened.ERROR if rule.severity is Severity.HIGH else Happened.WARNING
            text = f"alert {rule.name} ({rule.severity}) is firing: {look.notes.alert(rule.name).about}"
            self._note(Kind.ALERT, f"alert {rule.name}", text, severity=found)
        for rule in look.ended:
            lasted = spoken(max(SECOND, look.notes.at - before.alert(rule.name).since))
            self._note(Kind.ALERT, f"alert {rule.name}", f"alert {rule.name} is over after {lasted}")

    def _by_wall(self, message: AlertMessage, spec: AlertsSpec) -> AlertMessage:
        return message.by_wall(self._clock.wall() - self._clock.now(), spec.store)


def _unheard(spec: AlertsSpec, functions: Mapping[str, HandlerInfo]) -> list[str]:
    return [one.name for one in spec.channels if one.type == FUNCTION and one.handler not in functions]


def _function_task(handler: HandlerInfo, message: AlertMessage, at: int, channel: str) -> NewTask:
    parameter = msgspec.json.decode(handler.about).get("alert_parameter", "alert")
    params = to_json({parameter: document(message)})
    # In their order, as those of other channels.
    options = TaskOptions(order_key=channel, expires_in=EXPIRES_IN)
    return new_task(handler, params, derived_id(at, "alert", channel, message.number), options)
