"""The limits of a queue as people write them in code."""

from collections.abc import Mapping

from pitboss.client.options import whole_number
from pitboss.model.duration import Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate as windows_of
from pitboss.model.queue import QueueSettings
from pitboss.model.retention import FOREVER
from pitboss.model.states import FINISHED, State
from pitboss.model.text import listed

_CAPACITIES = range(1, 2**53)


def queue_settings(
    capacity: int | None, rate: str | None, retention: Time | Mapping[str, Time] | None
) -> QueueSettings:
    """`retention` is one age for all finished tasks, or ages by state; "forever" keeps them."""
    return QueueSettings(
        capacity=None if capacity is None else whole_number("capacity", capacity, _CAPACITIES),
        rate=() if rate is None else windows_of(rate),
        retention={} if retention is None else _ages(retention),
    )


def _ages(retention: Time | Mapping[str, Time]) -> dict[State, Span]:
    ages = retention if isinstance(retention, Mapping) else dict.fromkeys(FINISHED, retention)
    unknown = sorted(ages.keys() - FINISHED)
    if unknown:
        raise InvalidInput(
            f"retention does not know {listed(unknown)}",
            why=f"only finished tasks are removed: {', '.join(sorted(FINISHED))}",
            fix='write retention={"completed": "1d", "failed": "30d"}',
        )
    return {State(state): _age(age) for state, age in sorted(ages.items())}


def _age(age: Time) -> Span:
    return FOREVER if age == "forever" else span(age, what="retention")
