"""Acts of operators on the command line, for the audit log. Commands that only read store nothing there."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

# Options that do not change what is done.
_BESIDE = frozenset({"store", "json", "yes", "dry-run", "wait", "no-wait", "timeout", "new-key"})
_LONGEST = 500


class Audit(NamedTuple):
    """What was done ("queues pause"), to what, and how."""

    act: str
    target: str
    details: dict[str, Any]


def acting(context: typer.Context, target: str | None = None, **details: Any) -> Audit:
    """The act of the command that runs: its words, its arguments, and the options that were given.

    With a `target`, that and the `details` are all that is stored: for commands whose arguments may be secret.
    """
    act = " ".join(reversed(list(_names(context))))
    if target is not None:
        return Audit(act, target[:_LONGEST], details)
    found = list(_given(context))
    words = [word for name, value, option in found if not option for word in _texts(value)]
    options = {name: value for name, value, option in found if option and name not in _BESIDE}
    return Audit(act, " ".join(words)[:_LONGEST], options)


def _names(context: typer.Context) -> Iterator[str]:
    """The names of the command and its groups, from the inside out; an alias has the name of what it stands for."""
    place: Any = context
    while place.parent is not None:
        yield place.command.name or ""
        place = place.parent


def _given(context: typer.Context) -> Iterator[tuple[str, Any, bool]]:
    """Arguments and options that the command line has: name, value, and whether it is an option."""
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = one.param_type_name == "option"
            yield one.opts[0].lstrip("-") if option else one.name or "", context.params[one.name or ""], option


def _texts(value: Any) -> list[str]:
    from pitboss.model.resource_files import hides_password
    from pitboss.model.text import HIDDEN

    words = [str(one).strip() for one in (value if isinstance(value, list | tuple) else [value])]
    return [HIDDEN if hides_password(word) else word for word in words]
