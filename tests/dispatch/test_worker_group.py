"""How much a group claims, and when."""

from math import inf

import pytest

from pitboss.dispatch.worker_group import WorkerGroup
from pitboss.model.ids import make_id
from pitboss.model.session import Slot
from pitboss.model.task import Claim, Token


def claim_of(number: int) -> Claim:
    return Claim(id=make_id(1, number, 1), token=Token(1, 1), handler="a", queue="q", params="{}", attempt=1)


class _Worker:
    """A worker that takes two tasks at a time."""

    id = name = "w"
    capacity = 2
    silence = 0.0

    def start(self, claim: Claim) -> None: ...

    def stop(self, claim: Claim) -> None: ...

    def recall(self) -> None: ...


def _busy() -> WorkerGroup:
    """Its slots are full, and it was fast enough to claim ahead."""
    group = WorkerGroup("default", None)
    load = group.add(_Worker(), 0.0)
    for number in range(300):
        load.start(claim_of(number))
        group.ended(load, claim_of(number), number / 1000)
    load.start(claim_of(1000))
    load.start(claim_of(1001))
    assert group.slot().free == 0
    assert group.slot().ahead > 1
    return group


def test_after_empty_claims_ahead_the_pause_grows() -> None:
    group, now, pauses = _busy(), 10.0, list[float]()
    for _ in range(12):
        slot = group.slot()
        assert group.wants(slot, now)
        group.answered(slot, 0, now)
        assert not group.wants(slot, now)
        pauses.append(group.waits(slot, now))
        now += pauses[-1] + 1e-6
    assert pauses[0] < 0.02
    assert pauses[:8] == sorted(pauses[:8])
    assert pauses[-1] == pytest.approx(2.0)


def test_what_comes_ahead_ends_the_restraint() -> None:
    group = _busy()
    for _ in range(5):
        group.answered(group.slot(), 0, 10.0)
    group.answered(group.slot(), 1, 11.0)
    assert group.wants(group.slot(), 11.0)


def test_a_free_slot_claims_at_once_and_some_ahead() -> None:
    group = _busy()
    slot = group.slot()
    group.answered(slot, 0, 0.31)
    group.ended(group.workers["w"], claim_of(1000), 0.311)
    slot = group.slot()
    assert (slot.free, slot.ahead > 0) == (1, True)
    assert group.wants(slot, 0.311)
    group.answered(slot, 1, 0.312)
    assert group.waits(slot, 0.312) > 0.01


def test_no_wait_is_too_short_for_a_clock() -> None:
    group = _busy()
    group.answered(group.slot(), 0, 10.0)
    assert group.waits(group.slot(), group.ahead_from - 1e-12) == 0.001


def test_who_wants_nothing_ahead_or_is_paused_waits_for_others() -> None:
    group = WorkerGroup("default", None)
    assert group.waits(Slot(free=0), 1.0) == inf
    group = _busy()
    group.paused = True
    assert group.waits(group.slot(), 1.0) == inf
    assert not group.wants(group.slot(), 1.0)


def test_a_divided_group_is_starved_only_if_no_worker_is_full() -> None:
    group = WorkerGroup("default", None)
    group.divided = True
    first = group.add(_Worker(), 0.0)
    second = _Worker()
    second.id = "other"
    group.add(second, 0.0)
    group.answered(group.slot(), 1, 0.0, short=True)
    assert group.starved
    first.start(claim_of(1))
    first.start(claim_of(2))
    group.answered(group.slot(), 0, 0.0, short=True)
    assert not group.starved, "tasks of the full worker's own keys may wait for its room"
    assert group.hungry
