"""Which member is chosen, and how members are added, changed and recognised."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput
from pitboss.model.leasing import granted, placed
from pitboss.model.limits import Window
from pitboss.model.member_health import released
from pitboss.model.picking import ANY, ReadyMembers, added, added_again, changed, leased, nth_of, same_member
from pitboss.model.resource import (
    Limits,
    NewResource,
    PoolRules,
    Record,
    Report,
    Resource,
    ResourceChange,
    ResourceOutcome,
    Stage,
    Want,
)

RULES = PoolRules()
REBIND = PoolRules(away="rebind")
NONE = nth_of([])


def member(name: str, rank: int = 0, *labels: str, **options: object) -> Resource:
    return msgspec.structs.replace(Resource(pool="p", name=name, rank=rank, labels=labels), **options)


def name_of(found: Resource | None) -> str | None:
    return None if found is None else found.name


def test_lowest_rank_first_then_least_recently_used_then_by_name() -> None:
    ready = ReadyMembers(
        [member("d", 2), member("c", 1, last_used_at=5), member("b", 1, last_used_at=3), member("a", 1, last_used_at=5)]
    )
    found = []
    while one := ready.first(ANY):
        found.append(one.name)
        ready.remove(one.name)
    assert found == ["b", "a", "c", "d"]
    assert not ready


ranks = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.sampled_from([Stage.READY, Stage.BUSY])), max_size=30
)


@given(ranks)
def test_it_always_holds_the_ready_ones_in_order_as_they_were_put_last(puts: list[tuple[str, int, Stage]]) -> None:
    ready, last = ReadyMembers(), {}
    for name, rank, stage in puts:
        ready.put(member(name, rank, stage=stage))
        last[name] = (rank, 0, name, stage)
    expected = sorted(place for place in last.values() if place[3] is Stage.READY)
    found = []
    while one := ready.first(ANY):
        found.append((one.rank, one.last_used_at, one.name, one.stage))
        ready.remove(one.name)
    assert found == expected


def test_labels_and_members_that_were_tried_are_looked_past() -> None:
    ready = ReadyMembers([member("a"), member("b", 1, "eu"), member("c", 2, "eu", "fast")])
    assert name_of(ready.first(Want(labels=("eu",)))) == "b"
    assert name_of(ready.first(Want(labels=("eu",)), {"b"})) == "c"
    assert ready.first(Want(labels=("eu",)), {"b", "c"}) is None
    assert name_of(ready.first(ANY)) == "a"


def test_a_key_gets_its_own_member_whatever_was_tried() -> None:
    ready = ReadyMembers([member("a"), member("b", 1)])
    want = Want(key="k")
    assert name_of(ready.choose(want, {"b"}, member("b", 1), RULES)) == "b"
    assert name_of(ready.choose(want, set(), None, RULES)) == "a"


def test_a_key_whose_member_is_away_waits_or_goes_to_another() -> None:
    ready = ReadyMembers([member("a"), member("b", 1)])
    away = member("c", stage=Stage.AWAY)
    want = Want(key="k")
    assert ready.choose(want, set(), away, RULES) is None
    assert name_of(ready.choose(want, {"a"}, away, REBIND)) == "b"


@pytest.mark.parametrize("bound", [member("c", enabled=False, stage=Stage.OUT), member("c", 0, "us")])
def test_a_key_whose_member_is_disabled_or_lost_its_label_is_bound_anew(bound: Resource) -> None:
    ready = ReadyMembers([member("a"), member("b", 1, "eu")])
    assert name_of(ready.choose(Want(labels=("eu",), key="k"), set(), bound, RULES)) == "b"


def test_a_new_member_begins_with_the_pools_lowest_turn_and_its_labels_in_order() -> None:
    new = NewResource(name="m", labels=("b", "a", "b"), fields='{"host":"h"}', secrets={"pass": "sealed"}, weight=50)
    made = added("p", new, RULES, 700, 5)
    assert (made.record.turn, made.labels, made.added_at, made.weight) == (700, ("a", "b"), 5, 50)
    assert (made.stage, made.enabled, made.fields, made.secrets) == (Stage.READY, True, new.fields, new.secrets)
    with pytest.raises(InvalidInput, match="cannot name a resource"):
        added("p", NewResource(name="no spaces"), RULES, 0, 5)
    with pytest.raises(InvalidInput, match="weight"):
        added("p", NewResource(name="m", weight=0), RULES, 0, 5)


def test_one_that_is_there_is_as_was_said_last_and_keeps_what_its_uses_taught() -> None:
    windows = Limits(windows=(Window(1, 100),))
    rules = PoolRules(limits=windows)
    old = released(granted(added("p", NewResource(name="m"), rules, 0, 5), rules, NONE, 10), rules, None, 11)
    old = msgspec.structs.replace(old, enabled=False, disabled_reason="why")
    again = added_again(old, NewResource(name="m", weight=7, labels=("eu",)), rules, nth_of([10]), 20)
    assert (again.weight, again.labels, again.added_at, again.record) == (7, ("eu",), 5, old.record)
    assert (again.enabled, again.disabled_reason, again.stage) == (False, "why", Stage.OUT)
    assert again.available_at == 110


def test_an_operator_changes_only_what_was_said() -> None:
    one = msgspec.structs.replace(member("m", 0, "eu"), weight=9)
    off = changed(one, ResourceChange(enabled=False, reason="it smells"), RULES, NONE, 5)
    assert (off.stage, off.disabled_reason, off.labels, off.weight) == (Stage.OUT, "it smells", ("eu",), 9)
    on = changed(off, ResourceChange(enabled=True, reason="better"), RULES, NONE, 6)
    assert (on.stage, on.disabled_reason) == (Stage.READY, None)
    moved = changed(one, ResourceChange(labels=("z", "b", "z"), limits=Limits(concurrency=3)), RULES, NONE, 5)
    assert (moved.labels, moved.limits) == (("b", "z"), Limits(concurrency=3))
    assert changed(moved, ResourceChange(limits=None), RULES, NONE, 5).limits is None


def test_a_reset_forgets_faults_and_not_uses() -> None:
    rules = PoolRules(max_failures=1, limits=Limits(windows=(Window(1, 100),)))
    bad = Report(outcome=ResourceOutcome.BLOCKED)
    one = released(granted(placed(member("m"), rules, 0), rules, NONE, 10), rules, bad, 12)
    clean = changed(one, ResourceChange(reset=True), rules, nth_of([10]), 20)
    assert (clean.available_at, clean.stage) == (110, Stage.AWAY)
    kept = msgspec.structs.replace(clean.record, history=())
    assert kept == Record(uses=1, turn=one.record.turn, failed=1, last_outcome=bad.outcome, ended_at=12)
    assert [entry.what for entry in clean.record.history] == ["blacklisted", "reset"]


def test_its_holder_sees_all_that_it_needs_and_nothing_of_the_records() -> None:
    one = msgspec.structs.replace(
        member("m", 0, "eu"), fields='{"a":1}', secrets={"s": "x"}, valid_until=99, limits=Limits(guard=3)
    )
    lease = leased(one, RULES, 7, lease="l", expires_at=17)
    assert (lease.id, lease.fields, lease.secrets, lease.labels) == ("p/m", '{"a":1}', {"s": "x"}, ("eu",))
    assert (lease.leased_at, lease.valid_until, lease.guard, lease.lease, lease.expires_at) == (7, 99, 3, "l", 17)


def test_another_member_of_the_same_name_is_not_the_one_that_was_leased() -> None:
    made = added("p", NewResource(name="m"), RULES, 0, 5)
    assert same_member(made, 5)
    assert not same_member(added("p", NewResource(name="m"), RULES, 0, 6), 5)


@given(st.lists(st.integers(), max_size=5).map(sorted), st.integers(0, 7))
def test_the_nth_newest_use_counts_from_the_end(uses: list[int], n: int) -> None:
    assert nth_of(uses)(n) == (uses[len(uses) - n] if 1 <= n <= len(uses) else None)
