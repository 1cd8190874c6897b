"""How much is asked for, and when."""

from math import inf

import pytest

from pitboss.dispatch.share import Seat, Share
from pitboss.model.ids import make_id
from pitboss.model.session import Slot
from pitboss.model.task import Claim, Token


def claim_of(number: int) -> Claim:
    return Claim(id=make_id(1, number, 1), token=Token(1, 1), handler="a", queue="q", params="{}", attempt=1)


class _Lane:
    """A worker that takes two tasks at a time."""

    id = name = "w"
    capacity = 2

    def start(self, claim: Claim) -> None: ...

    def stop(self, claim: Claim) -> None: ...

    def recall(self) -> None: ...


def _busy() -> Share:
    """Its slots are full, and it has been fast enough to want some ahead."""
    share = Share("default", None)
    seat = share.seats["w"] = Seat(_Lane(), 0.0)
    for number in range(300):
        seat.start(claim_of(number))
        share.ended(seat, claim_of(number), number / 1000)
    seat.start(claim_of(1000))
    seat.start(claim_of(1001))
    assert share.slot().free == 0
    assert share.slot().ahead > 1
    return share


def test_what_is_asked_for_ahead_in_vain_is_asked_for_less_and_less() -> None:
    share, now, pauses = _busy(), 10.0, list[float]()
    for _ in range(12):
        slot = share.slot()
        assert share.wants(slot, now)
        share.answered(slot, 0, now)
        assert not share.wants(slot, now)
        pauses.append(share.waits(slot, now))
        now += pauses[-1] + 1e-6
    assert pauses[0] < 0.02
    assert pauses[:8] == sorted(pauses[:8])
    assert pauses[-1] == pytest.approx(2.0)


def test_what_comes_ahead_ends_the_restraint() -> None:
    share = _busy()
    for _ in range(5):
        share.answered(share.slot(), 0, 10.0)
    share.answered(share.slot(), 1, 11.0)
    assert share.wants(share.slot(), 11.0)


def test_a_free_slot_asks_whatever_was_in_vain_and_for_some_ahead() -> None:
    share = _busy()
    slot = share.slot()
    share.answered(slot, 0, 0.31)
    share.ended(share.seats["w"], claim_of(1000), 0.311)
    slot = share.slot()
    assert (slot.free, slot.ahead > 0) == (1, True)
    assert share.wants(slot, 0.311)
    share.answered(slot, 1, 0.312)
    assert share.waits(slot, 0.312) > 0.01


def test_no_wait_is_too_short_for_a_clock() -> None:
    share = _busy()
    share.answered(share.slot(), 0, 10.0)
    assert share.waits(share.slot(), share.ahead_from - 1e-12) == 0.001


def test_who_wants_nothing_ahead_or_is_paused_waits_for_others() -> None:
    share = Share("default", None)
    assert share.waits(Slot(free=0), 1.0) == inf
    share = _busy()
    share.paused = True
    assert share.waits(share.slot(), 1.0) == inf
    assert not share.wants(share.slot(), 1.0)
