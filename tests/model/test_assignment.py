"""Which slot should own which key."""

from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.assignment import KeyLoad, assignment, divided, problems, skew
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.states import State

BALANCED = Partitioning(by="{state}", mode="balanced")
STATIC = Partitioning(by="{state}", mode="static", table={0: ("CA", "TX"), 1: ("NY",)}, keys=("CA", "TX", "NY"))

works = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)


def slot(number: int, pool: str = "w") -> PoolSlot:
    return PoolSlot(pool=pool, number=number, node="n", place=number, session=1)


def key(name: str, work: int = 0, owner: str | None = None, **more: Any) -> Partition:
    counts = {State.PENDING: work} if work else {}
    return Partition(queue="q", key=name, owner=owner, counts=counts, **more)


def loads_of(owners: dict[str, str], works: dict[str, float]) -> dict[str, float]:
    loads: dict[str, float] = {}
    for name, owner in owners.items():
        loads[owner] = loads.get(owner, 0) + works[name]
    return loads


@given(works, st.integers(1, 12))
def test_every_key_gets_a_slot_and_a_second_look_moves_none(found: list[int], number: int) -> None:
    slots = [slot(n) for n in range(number)]
    keys = [key(f"k{n}", work) for n, work in enumerate(found)]
    wanted = assignment(BALANCED, keys, slots)
    assert wanted.keys() == {one.key for one in keys}
    placed = [key(one.key, one.unfinished, wanted[one.key]) for one in keys]
    again = assignment(BALANCED, placed, slots)
    assert again == {}


def test_an_empty_slot_gets_keys_though_the_longest_slot_can_give_none_away() -> None:
    keys = [key("heavy", 500, "w/0"), key("a", 0, "w/1"), key("b", 0, "w/1"), key("c", 3, "w/1")]
    moved = assignment(BALANCED, keys, [slot(n) for n in range(3)])
    assert moved == {"c": "w/2"}


@given(works, st.integers(1, 6), st.integers(1, 3))
def test_no_slot_gives_its_last_key_to_one_that_joins(found: list[int], number: int, more: int) -> None:
    """Not even because of a rounding error."""
    keys = [key(f"k{n}", work, f"w/{n % number}") for n, work in enumerate(found)]
    moved = assignment(BALANCED, keys, [slot(n) for n in range(number + more)])
    had, have = {one.owner for one in keys}, {moved.get(one.key, one.owner) for one in keys}
    assert had <= have


@given(works, works, st.integers(1, 6), st.integers(1, 3))
def test_after_a_join_no_change_of_the_work_moves_keys_into_empty_slots(
    found: list[int], later: list[int], number: int, more: int
) -> None:
    keys = [key(f"k{n}", work, f"w/{n % number}") for n, work in enumerate(found)]
    slots = [slot(n) for n in range(number + more)]
    moved = assignment(BALANCED, keys, slots)
    placed = [key(one.key, later[n % len(later)], moved.get(one.key) or one.owner) for n, one in enumerate(keys)]
    assert assignment(BALANCED, placed, slots) == {}


@given(works, st.integers(1, 8))
def test_a_join_moves_no_more_than_its_share(found: list[int], number: int) -> None:
    keys = [key(f"k{n}", work) for n, work in enumerate(found)]
    before = assignment(BALANCED, keys, [slot(n) for n in range(number)])
    placed = [key(one.key, one.unfinished, before[one.key]) for one in keys]
    moved = assignment(BALANCED, placed, [slot(n) for n in range(number + 1)])
    assert len(moved) <= ceil(len(keys) / (number + 1))
    assert set(moved.values()) <= {f"w/{number}"}


@given(works, st.integers(2, 8))
def test_when_a_slot_leaves_only_its_keys_move(found: list[int], number: int) -> None:
    keys = [key(f"k{n}", work) for n, work in enumerate(found)]
    before = assignment(BALANCED, keys, [slot(n) for n in range(number)])
    placed = [key(one.key, one.unfinished, before[one.key]) for one in keys]
    moved = assignment(BALANCED, placed, [slot(n) for n in range(number - 1)])
    assert moved.keys() == {name for name, owner in before.items() if owner == f"w/{number - 1}"}


@given(works, st.integers(1, 8))
def test_evening_out_never_makes_the_longest_work_longer(found: list[int], number: int) -> None:
    names = [f"w/{n}" for n in range(number)]
    loads = [KeyLoad(f"k{n}", names[n % 2 % number], float(work)) for n, work in enumerate(found)]
    works_of = {one.key: one.work for one in loads}
    before = max(loads_of({one.key: one.slot or "" for one in loads}, works_of).values())
    after = max(loads_of(divided(loads, names, even_out=True), works_of).values())
    assert after <= before


def test_small_differences_move_nothing() -> None:
    slots = [slot(0), slot(1)]
    keys = [key("a", 20, "w/0"), key("b", 20, "w/0"), key("c", 15, "w/1")]
    assert assignment(BALANCED, keys, slots, seconds=1, even_out=True) == {}
    assert assignment(BALANCED, keys, slots, seconds=100, even_out=False) == {}
    assert assignment(BALANCED, [*keys, key("d", 60, "w/0")], slots, seconds=10, even_out=True) == {
        "d": "w/1",
        "c": "w/0",
    }


def test_a_pinned_key_stays_at_its_slot_and_moves_there() -> None:
    slots = [slot(0), slot(1)]
    keys = [key("a", 500, "w/0", pinned="w/0"), key("b", 1, "w/0", pinned="w/1")]
    assert assignment(BALANCED, keys, slots, even_out=True) == {"b": "w/1"}
    assert assignment(BALANCED, keys, [slot(0)]) == {}


def test_a_key_that_is_moving_is_not_moved_again() -> None:
    keys = [key("a", 5, "w/0", moving_to="w/1"), key("b", 5, "w/0")]
    assert assignment(BALANCED, keys, [slot(0), slot(1)]) == {}


def test_a_table_gives_keys_to_slots_that_are_not_there_yet() -> None:
    assert assignment(STATIC, [], [slot(0)]) == {"CA": "w/0", "TX": "w/0", "NY": "w/1"}
    placed = [key("CA", 1, "w/0"), key("TX", 1, "w/0"), key("NY", 1, "w/1"), key("GU", 1)]
    assert assignment(STATIC, placed, [slot(0)]) == {}
    assert assignment(STATIC, placed, []) == {}


def test_keys_of_a_missing_slot_go_to_others_and_come_back() -> None:
    spec = Partitioning(by="{s}", mode="static", table=STATIC.table, on_missing="reassign")
    placed = [key("CA", 1, "w/0"), key("TX", 1, "w/0"), key("NY", 1, "w/1")]
    assert assignment(spec, placed, [slot(0)]) == {"NY": "w/0"}
    away = [*placed[:2], key("NY", 1, "w/0")]
    assert assignment(spec, away, [slot(0)]) == {}
    assert assignment(spec, away, [slot(0), slot(1)]) == {"NY": "w/1"}


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (Partitioning(by="{s}", mode="static", table={0: ("CA",), 1: ("CA",)}), "keys in two slots: CA (slots 0, 1)"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA", "CA")}), "keys twice in one slot: CA (slot 0)"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA",)}, keys=("CA", "TX")), "missing keys: TX"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA", "XX")}, keys=("CA",)), "unknown keys: XX"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA",), 1: ()}), "slots without keys: 1"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA",), 2: ("TX",)}), "slots that are left out: 1"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA", " ")}), "empty keys in slots: 0"),
        (Partitioning(by="{s}", mode="static", table={}), "no slots: the table is empty"),
        (Partitioning(by="{s}", mode="static", table={0: ("CA",)}, keys=("CA", "CA")), "keys twice in keys=: CA"),
        (
            Partitioning(by="{s}", mode="static", table={0: ("x" * 200, "y" * 201)}),
            f"keys of more than 200 characters: {'y' * 20}…",
        ),
        (
            Partitioning(by="{s}", mode="static", table={0: ("CA",)}, weights={"CA": 0.0}),
            "weights that are not above 0: CA",
        ),
        (
            Partitioning(by="{s}", mode="static", table={0: ("CA",)}, weights={"ZZ": 1.0}),
            "weights of unknown keys: ZZ",
        ),
    ],
)
def test_a_broken_table_is_described(spec: Partitioning, what: str) -> None:
    assert [str(one) for one in problems(spec)] == [what]


def test_a_missing_key_is_named_once() -> None:
    spec = Partitioning(by="{s}", mode="static", table={0: ("CA",)}, keys=("CA", "TX", "TX"))
    assert [str(one) for one in problems(spec)] == ["keys twice in keys=: TX", "missing keys: TX"]


def test_a_sound_table_has_no_problems() -> None:
    assert problems(STATIC) == []


def test_skew_is_one_when_all_have_the_same() -> None:
    assert (skew([2, 2]), skew([3, 1]), skew([]), skew([0, 0])) == (1.0, 1.5, 1.0, 1.0)
