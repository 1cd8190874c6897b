"""The limits of a queue as people write them in code."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from pitboss.client.options import whole_number
from pitboss.client.policy_settings import refuse_unknown
from pitboss.model.duration import Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate as windows_of
from pitboss.model.partition import Mode, OnMissing
from pitboss.model.partition_keys import checked_keys, with_partitions
from pitboss.model.queue import QueueSettings
from pitboss.model.retention import FOREVER
from pitboss.model.states import FINISHED, State
from pitboss.model.text import listed

_CAPACITIES = range(1, 2**53)


class PartitionKeys(TypedDict, total=False):
    """What `app.queue` says of partitions."""

    partition_by: str | None
    mode: Mode | None
    partitions: Mapping[int, Sequence[str]] | None
    keys: Sequence[str] | None
    weights: Mapping[str, float] | None
    on_missing: OnMissing | None
    pool: str | None
    max_per_key: int | None


def queue_settings(
    name: str,
    capacity: int | None,
    rate: str | None,
    retention: Time | Mapping[str, Time] | None,
    partitions: Mapping[str, Any] = MappingProxyType({}),
) -> QueueSettings:
    """`retention` is one age for all finished tasks, or ages by state; "forever" keeps them."""
    plain = QueueSettings(
        capacity=None if capacity is None else whole_number("capacity", capacity, _CAPACITIES),
        rate=() if rate is None else windows_of(rate),
        retention={} if retention is None else _ages(retention),
    )
    refuse_unknown(partitions, PartitionKeys.__annotations__, "app.queue")
    return with_partitions(name, plain, checked_keys(partitions))


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
