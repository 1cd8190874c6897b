"""Finds the lease that a handler asks for in its parameters."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from pitboss.client.lease import Asked
from pitboss.model.canonical import from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.want_template import WantTemplate, checked_template


class AskedLease(NamedTuple):
    """The parameter that gets the lease, whose pool it is, and what each task wants of it."""

    parameter: str
    pool: str
    template: WantTemplate


def lease_in(task: str, function: Callable[..., Any]) -> AskedLease | None:
    """The one lease that the function asks for, if any. A task holds one resource at a time."""
    parameters = inspect.signature(function).parameters
    found = {name: one.default for name, one in parameters.items() if isinstance(one.default, Asked)}
    if not found:
        return None
    if len(found) > 1:
        raise InvalidInput(
            f'task "{task}" asks for {len(found)} leases: {", ".join(found)}',
            why="a task is given together with one member of one pool",
            fix="keep one as a parameter, and take the other inside: with pool.lease() as other: …",
        )
    ((name, asked),) = found.items()
    terms = asked.terms
    if terms.key is not None or terms.hold is not None:
        raise InvalidInput(
            f'the lease of task "{task}" says key= or hold=',
            why="a task holds its member as long as it runs, and its parameters make the key",
            fix='say sticky="…" with the name of a parameter, and leave hold= out',
        )
    template = WantTemplate(terms.labels, terms.sticky)
    others = {key: one for key, one in parameters.items() if key != name}
    checked_template(template, task, others)
    defaults = {key: others[key].default for key in template.parameters if others[key].default is not others[key].empty}
    return AskedLease(name, asked.source.name, WantTemplate(terms.labels, terms.sticky, from_json(to_json(defaults))))
