"""Partitions of a queue: its tasks have keys, and the slots of workers own keys.

A key is made from a task's parameters. A slot is the place of one worker (`model.pool_slot`). Which slot should own
which key is decided in `model.assignment`; correctness never rests on it, because every claim has a token.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import md5
from string import Formatter
from typing import Any, Literal

import msgspec

from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.states import State

Mode = Literal["affinity", "balanced", "static"]
OnMissing = Literal["hold", "reassign", "steal"]
MODES: tuple[Mode, ...] = ("affinity", "balanced", "static")
ON_MISSING: tuple[OnMissing, ...] = ("hold", "reassign", "steal")
LONGEST_KEY = 200
# How many of the first pending tasks a claim looks at before it goes through the slot's own keys one by one.
LOOK = 1000


class Partitioning(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How the tasks of a queue are divided among the workers.

    `by` is a template over the parameters, such as "{state}". `affinity`: a slot takes tasks of its own keys first,
    then of any. `balanced`: only those of its own keys, which the leader divides by the work that waits. `static`: only
    those of its own keys, by `table` (slot number -> keys) over the slots of the worker pool `pool` (None: the one that
    serves the queue); `on_missing` says what happens to keys whose slot no worker has: they wait, go to other slots, or
    any slot takes their tasks. `keys` are all keys that there are, and `weights` their shares of the work, for checks
    only.
    """

    by: str
    mode: Mode = "affinity"
    table: dict[int, tuple[str, ...]] = {}
    pool: str | None = None
    keys: tuple[str, ...] = ()
    weights: dict[str, float] = {}
    on_missing: OnMissing = "hold"

    @property
    def exclusive(self) -> bool:
        """Whether only the owner takes tasks of a key."""
        return self.mode != "affinity"


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A key and the slot that owns it ("POOL/NUMBER").

    `moving_to` is the slot that gets it as soon as none of its tasks runs; until then no task of it starts. `epoch`
    counts its owners. `pinned` is the slot that an operator chose. `counts` are its unfinished tasks by state, zeros
    left out.
    """

    queue: str
    key: str
    owner: str | None = None
    moving_to: str | None = None
    epoch: int = 0
    pinned: str | None = None
    counts: dict[State, int] = {}

    @property
    def unfinished(self) -> int:
        return sum(self.counts.values())

    @property
    def waiting(self) -> int:
        return self.unfinished - self.counts.get(State.RUNNING, 0)


class PartitionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants of a key: another owner, and whether it stays there. A pin of None ends a pin."""

    owner: str | msgspec.UnsetType = msgspec.UNSET
    pinned: str | msgspec.UnsetType | None = msgspec.UNSET


def changed_partition(one: Partition, change: PartitionChange, *, running: bool, exclusive: bool) -> Partition:
    """The key after what an operator wants. `running`: a task of it runs."""
    if change.pinned is not msgspec.UNSET:
        one = msgspec.structs.replace(one, pinned=change.pinned)
    if change.owner is msgspec.UNSET:
        return one
    return given_to(one, change.owner, running=running, exclusive=exclusive)


def given_to(one: Partition, slot: str, *, running: bool, exclusive: bool) -> Partition:
    """The key on its way to this slot: at once, or when no task of it runs. Without an exclusive owner nothing
    waits."""
    if one.owner == slot:
        return msgspec.structs.replace(one, moving_to=None)
    if one.owner is not None and running and exclusive:
        return msgspec.structs.replace(one, moving_to=slot)
    return msgspec.structs.replace(one, owner=slot, moving_to=None, epoch=one.epoch + 1)


def arrived(one: Partition, *, running: bool) -> Partition:
    """The key at the end of its move, if no task of it runs any more."""
    if one.moving_to is None or running:
        return one
    return msgspec.structs.replace(one, owner=one.moving_to, moving_to=None, epoch=one.epoch + 1)


@lru_cache(maxsize=256)
def key_parts(by: str) -> tuple[tuple[str, str | None], ...]:
    """The template as texts, each with the parameter behind it (None at the end)."""
    try:
        parts = [(text, field, spec, conversion) for text, field, spec, conversion in Formatter().parse(by)]
    except ValueError:
        parts = []
    named = [field for _, field, _, _ in parts if field is not None]
    plain = all(not spec and conversion is None for _, _, spec, conversion in parts)
    if not named or not plain or not all(field.isidentifier() for field in named):
        raise InvalidInput(
            f"{by!r:.80} is not a partition key",
            why="it is text with names of parameters in braces, and nothing else in the braces",
            fix='write it like "{state}" or "{country}/{city}"',
        )
    return tuple((text, field) for text, field, _, _ in parts)


def key_names(by: str) -> tuple[str, ...]:
    """The parameters that the template names."""
    return tuple(dict.fromkeys(field for _, field in key_parts(by) if field is not None))


def partition_key(by: str, params: Json) -> str | None:
    """The key of a task with these parameters: texts as they are, numbers and booleans as in JSON. None if it
    lacks one of the parameters, or one is null, a list or an object."""
    values: Mapping[str, Any] = from_json(params)
    made = ""
    for text, name in key_parts(by):
        made += text
        if name is None:
            continue
        value = values.get(name) if isinstance(values, Mapping) else None
        if value is None or isinstance(value, list | dict):
            return None
        made += value if isinstance(value, str) else to_json(value)
    return shortened(made) or None


def shortened(key: str) -> str:
    """A key of at most 200 characters: a longer one ends in a digest of the whole, so that it stays one of its own."""
    if len(key) <= LONGEST_KEY:
        return key
    # PostgreSQL has this digest without an extension.
    digest = md5(key.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
    return f"{key[: LONGEST_KEY - len(digest) - 1]}~{digest}"
