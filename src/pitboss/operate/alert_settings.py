"""Settings of alerts that can be used, and probably do not do what they are meant to: for `up` and `doctor`."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from pitboss.model.alert import AlertRule
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.alert_message import FUNCTION
from pitboss.model.alert_rules import AlertsSpec, Pause, action_of
from pitboss.model.finding import Finding, warning
from pitboss.model.queue import HandlerInfo
from pitboss.model.text import listed

_CHECK = "settings"
# By what a condition looks at; what is not here cannot be checked.
Known = Mapping[str, Collection[str]]


def undeclared_functions(spec: AlertsSpec | None, handlers: Iterable[HandlerInfo]) -> Iterator[Finding]:
    """Channels that tell a function which none of these handlers is."""
    names = {one.name for one in handlers}
    for one in spec.channels if spec is not None else ():
        if one.type == FUNCTION and one.handler not in names:
            yield warning(
                _CHECK,
                f'alerts.channels.{one.name} tells the function "{one.handler}", which the app does not declare',
                why="until an app declares it, its messages wait",
                fix=f'declare it with @app.alert_channel("{one.handler}"), or correct handler in the channel',
            )


def unknown_names(spec: AlertsSpec | None, known: Known) -> Iterator[Finding]:
    """Rules that look at, or change, something that is not there."""
    for rule in spec.rules if spec is not None else ():
        for kind, name, key in _named(rule):
            if kind in known and name not in known[kind]:
                there = listed(sorted(known[kind])) if known[kind] else "none"
                yield warning(
                    _CHECK,
                    f'alerts.rules.{rule.name}.{key} names the {kind} "{name}", which is not there',
                    why=f"the {kind}s of the app and of the store are {there}",
                    fix="correct the name, unless it will come later",
                )


def _named(rule: AlertRule) -> Iterator[tuple[str, str, str]]:
    for name in rule.only:
        yield CONDITIONS[rule.condition].about, name, "only"
    match action_of(rule.action):
        case None:
            return
        case Pause(queue):
            yield "queue", queue, "action"
        case scale:
            yield "worker pool", scale.pool, "action"
