"""Which slot should own which key. Pure: the leader reads, calls `assignment`, and writes the result.

A key stays where it is unless its slot is gone, an operator pinned it, a slot has no key yet, or a move saves much
work.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Span
from pitboss.model.partition import LONGEST_KEY, Partition, Partitioning
from pitboss.model.pool_slot import PoolSlot, slot_name

# A move must save this much work, and this share of the longest slot's work.
WORTH: Span = 30 * SECOND
WORTH_SHARE = 0.1
# How often keys are moved only because the work has become uneven.
EVEN_OUT_EVERY: Span = 60 * SECOND
# Swaps are tried with so few keys only: among more, each is a small part of a slot's work, and trying takes seconds.
_FEW = 500
# Keys without tasks count a little, so that they are spread too.
_NOTHING = 1e-6
# Sums of the same work differ by less, in whatever order they were made.
_ROUNDING = _NOTHING / 10


class KeyLoad(NamedTuple):
    """A key, the slot that has it or gets it, and the work that waits, in any unit."""

    key: str
    slot: str | None
    work: float


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a table of keys, and the keys or slots that it is about."""

    what: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.what}: {', '.join(self.names)}"


def assignment(
    spec: Partitioning,
    partitions: Iterable[Partition],
    slots: Sequence[PoolSlot],
    *,
    seconds: float = 1.0,
    even_out: bool = False,
) -> dict[str, str]:
    """The keys that should go to another slot than the one that they have or are moving to.

    `slots` are those that belong to a node and serve the queue. `seconds` is how long a task of the queue takes.
    `even_out`: also move keys because the work has become uneven.
    """
    known = {one.key: one for one in partitions}
    named = [one.name for one in slots]
    fixed = _fixed(spec, known, slots)
    loads = [
        KeyLoad(key, fixed.get(key) or one.moving_to or one.owner, one.unfinished * seconds + _NOTHING)
        for key, one in sorted(known.items())
    ]
    if spec.mode == "static":
        wanted = dict(fixed)
        if spec.on_missing == "reassign":
            missing = {key for key, slot in fixed.items() if slot not in named}
            present = [_where_it_is(one, known[one.key], missing) for one in loads if one.key in known]
            wanted |= divided(present, named, fixed=fixed.keys() - missing)
    else:
        wanted = divided(loads, named, fixed=fixed.keys(), even_out=even_out)
    return {key: slot for key, slot in wanted.items() if slot != _present(known.get(key))}


def divided(
    loads: Sequence[KeyLoad], slots: Sequence[str], *, fixed: Collection[str] = (), even_out: bool = False
) -> dict[str, str]:
    """A slot for every key. Keys of slots that are there stay, except: a slot without any gets its share, and with
    `even_out` keys are moved while a move is worth it. `fixed` keys never move."""
    if not slots:
        return {one.key: one.slot for one in loads if one.slot is not None and one.key in fixed}
    division = _Division(loads, slots, fixed)
    unplaced = division.place_the_rest()
    if unplaced == len(loads) - len(fixed):
        # Nothing has a place yet: any arrangement costs the same.
        division.improve(most=10 * len(loads), swaps=len(loads) <= _FEW)
        return division.owner
    empty = division.empty_slots()
    if empty:
        division.fill(empty, most=len(empty) * ceil(len(loads) / len(slots)))
    elif even_out:
        division.improve(most=len(loads), worth=WORTH / SECOND, share=WORTH_SHARE)
    return division.owner


class _Division:
    """Keys in slots, while they are moved."""

    def __init__(self, loads: Sequence[KeyLoad], slots: Sequence[str], fixed: Collection[str]) -> None:
        self._work = {one.key: one.work for one in loads}
        self._fixed = set(fixed)
        self._keys: dict[str, set[str]] = {slot: set() for slot in slots}
        self._loads = dict.fromkeys(slots, 0.0)
        self.owner: dict[str, str] = {}
        for one in loads:
            if one.slot in self._keys or (one.slot is not None and one.key in self._fixed):
                self._put(one.key, one.slot or "")

    def place_the_rest(self) -> int:
        """Give each key without a slot to the one with the least work, the heaviest first; how many there were."""
        rest = sorted(self._work.keys() - self.owner.keys(), key=lambda key: (-self._work[key], key))
        for key in rest:
            self._put(key, min(self._loads, key=lambda slot: (self._loads[slot], len(self._keys[slot]))))
        return len(rest)

    def empty_slots(self) -> set[str]:
        return {slot for slot, keys in self._keys.items() if not keys}

    def fill(self, empty: Collection[str], *, most: int) -> None:
        """Move keys into these slots while that leaves less work on the fuller one of both slots, `most` times.

        The slot with the most work that can give one away does. So a slot stays empty only if no other has two keys,
        however the work is spread: the next look, with other figures, moves none because of it.
        """
        for _ in range(most):
            sources = sorted(self._keys.keys() - set(empty), key=lambda slot: (-self._loads[slot], slot))
            found = next(filter(None, (self._best_move(source, empty) for source in sources)), None)
            if found is None:
                return
            for key, slot in found[1]:
                self._move(key, slot)

    def improve(self, *, most: int, worth: float = 0.0, share: float = 0.0, swaps: bool = False) -> None:
        """Move keys from the slot with the most work while that makes the longest work shorter, `most` times."""
        for _ in range(most):
            longest = max(self._loads, key=lambda slot: (self._loads[slot], slot))
            before = self._loads[longest]
            found = self._best_move(longest, self._loads)
            if swaps and found is None:
                found = self._best_swap(longest)
            if found is None or before - found[0] <= max(worth, share * before):
                return
            for key, slot in found[1]:
                self._move(key, slot)

    def _best_move(self, source: str, to: Collection[str]) -> tuple[float, list[tuple[str, str]]] | None:
        """The move that leaves the least work on the fuller one of both slots, if that is less than before."""
        targets = [slot for slot in self._loads if slot != source and slot in to]
        if not targets:
            return None
        target = min(targets, key=lambda slot: (self._loads[slot], len(self._keys[slot])))
        best, chosen = self._loads[source], ""
        for key in sorted(self._keys[source] - self._fixed):
            after = max(self._loads[source] - self._work[key], self._loads[target] + self._work[key])
            if after < best - _ROUNDING:
                best, chosen = after, key
        return (best, [(chosen, target)]) if chosen else None

    def _best_swap(self, source: str) -> tuple[float, list[tuple[str, str]]] | None:
        best, moves = self._loads[source] - _NOTHING, list[tuple[str, str]]()
        for target in sorted(self._keys.keys() - {source}):
            for key in sorted(self._keys[source] - self._fixed):
                for other in sorted(self._keys[target] - self._fixed):
                    less = self._work[key] - self._work[other]
                    after = max(self._loads[source] - less, self._loads[target] + less)
                    if less > 0 and after < best:
                        best, moves = after, [(key, target), (other, source)]
        return (best, moves) if moves else None

    def _put(self, key: str, slot: str) -> None:
        self.owner[key] = slot
        if slot in self._keys:
            self._keys[slot].add(key)
            self._loads[slot] += self._work[key]

    def _move(self, key: str, slot: str) -> None:
        before = self.owner[key]
        self._keys[before].discard(key)
        self._loads[before] -= self._work[key]
        self._put(key, slot)


def _fixed(spec: Partitioning, known: Mapping[str, Partition], slots: Sequence[PoolSlot]) -> dict[str, str]:
    """The keys whose slot does not follow from the work: by the table, or pinned to a slot that is there."""
    pool = table_pool(spec, slots)
    there = {one.name for one in slots}
    fixed: dict[str, str] = {}
    if spec.mode == "static" and pool is not None:
        fixed = {key: slot_name(pool, number) for number, keys in spec.table.items() for key in keys}
    return fixed | {key: one.pinned for key, one in known.items() if one.pinned is not None and one.pinned in there}


def table_pool(spec: Partitioning, slots: Sequence[PoolSlot]) -> str | None:
    """The worker pool whose slots a table counts; None if no pool serves the queue yet."""
    return spec.pool or min((one.pool for one in slots), default=None)


def _where_it_is(load: KeyLoad, one: Partition, missing: Collection[str]) -> KeyLoad:
    """A key whose slot by the table is missing stays where it went."""
    return load._replace(slot=one.moving_to or one.owner) if load.key in missing else load


def _present(one: Partition | None) -> str | None:
    return None if one is None else one.moving_to or one.owner


def problems(spec: Partitioning) -> list[Problem]:
    """What is wrong with the table of a static division."""
    every = [key for keys in spec.table.values() for key in keys]
    twice = {key: [n for n, keys in spec.table.items() for one in keys if one == key] for key in every}
    across = tuple(
        f"{key} (slots {', '.join(map(str, sorted(set(n))))})" for key, n in twice.items() if len(set(n)) > 1
    )
    within = tuple(f"{key} (slot {n[0]})" for key, n in twice.items() if len(n) > len(set(n)))
    universe = set(spec.keys)
    numbers = sorted(spec.table)
    found = [
        Problem("keys in two slots", across),
        Problem("keys twice in one slot", within),
        Problem("keys twice in keys=", tuple(key for key, n in Counter(spec.keys).items() if n > 1)),
        Problem("missing keys", tuple(dict.fromkeys(key for key in spec.keys if key not in twice))),
        Problem("unknown keys", tuple(dict.fromkeys(key for key in every if universe and key not in universe))),
        Problem("slots without keys", tuple(str(number) for number in numbers if not spec.table[number])),
        Problem(
            "slots that are left out", tuple(str(n) for n in range(max(numbers, default=-1) + 1) if n not in numbers)
        ),
        Problem("slot numbers below 0", tuple(str(number) for number in numbers if number < 0)),
        Problem("empty keys in slots", tuple(str(n) for n in numbers if any(not key.strip() for key in spec.table[n]))),
        Problem(
            f"keys of more than {LONGEST_KEY} characters",
            tuple(f"{key:.20}…" for key in twice if len(key) > LONGEST_KEY),
        ),
        Problem("weights of unknown keys", tuple(key for key in spec.weights if key not in universe | set(every))),
        Problem(
            "weights that are not above 0", tuple(key for key, weight in spec.weights.items() if not 0 < weight < inf)
        ),
    ]
    return [one for one in found if one.names] + ([] if spec.table else [Problem("no slots", ("the table is empty",))])


def skew(loads: Iterable[float]) -> float:
    """The largest work of a slot beside the mean: 1 is even."""
    found = list(loads)
    mean = sum(found) / len(found) if found else 0.0
    return max(found) / mean if mean else 1.0
