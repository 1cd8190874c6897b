"""Slots: who keeps which number, over random joins, leaves and restarts."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pitboss.model.duration import SECOND, Moment
from pitboss.model.pool_slot import PoolSlot, is_kept, seated
from pitboss.model.session import Session, SessionInfo

TTL = 10 * SECOND


def session(number: int, *, pid: int = 0, opened_at: Moment = 0) -> Session:
    info = SessionInfo(host="h", boot_id="b", pid=pid or number, ttl=TTL)
    return Session(number=number, info=info, opened_at=opened_at, expires_at=opened_at + TTL)


def test_a_slot_is_kept_while_its_session_lives_and_as_long_again_after_an_orderly_end() -> None:
    one = session(1)
    assert is_kept(one, TTL - 1)
    assert not is_kept(one, TTL)
    ended = one.closed(3 * SECOND)
    assert is_kept(ended, 3 * SECOND + TTL - 1)
    assert not is_kept(ended, 3 * SECOND + TTL)
    assert not is_kept(None, 0)


def test_a_session_that_is_proved_dead_after_its_time_is_kept_for_what_is_left() -> None:
    late = session(1).closed(TTL + 3 * SECOND)
    assert is_kept(late, 2 * TTL - 1)
    assert not is_kept(late, 2 * TTL)


def test_a_slot_serves_the_queues_of_its_pool() -> None:
    one = PoolSlot(pool="w", number=3, node="n", place=0, session=1, queues=("a",))
    assert (one.name, one.serves("a"), one.serves("b")) == ("w/3", True, False)
    assert replace(one, queues=None).serves("b")


class Seats:
    """A pool of workers on a few nodes, as a store keeps it."""

    def __init__(self) -> None:
        self.now: Moment = 0
        self.sessions: dict[int, Session] = {}
        self.slots: dict[str, PoolSlot] = {}

    def open(self, pid: int = 0) -> Session:
        one = session(len(self.sessions) + 1, pid=pid, opened_at=self.now)
        self.sessions[one.number] = one
        return one

    def end(self, one: Session) -> None:
        self.sessions[one.number] = self.sessions[one.number].closed(self.now)

    def kept(self) -> list[PoolSlot]:
        found = [one for one in self.slots.values() if is_kept(self.sessions[one.session], self.now)]
        return [replace(one, live=self.sessions[one.session].alive(self.now)) for one in found]

    def take(self, one: Session, node: str, places: set[int]) -> list[PoolSlot]:
        kept = self.kept()
        taken = seated(kept, self.sessions, self.sessions[one.number], "w", node, places, None)
        left = {slot.name: slot for slot in kept if slot.session != one.number}
        self.slots = left | {slot.name: slot for slot in taken}
        return taken


places = st.sets(st.integers(0, 5), max_size=4)
acts = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "leave", "restart", "vanish", "resize", "wait"]),
        st.integers(0, 100),
        st.sampled_from(["a", "b"]),
        places,
    ),
    max_size=25,
)


@given(acts)
def test_numbers_are_unique_and_those_of_live_sessions_stay(chosen: list[tuple[str, int, str, set[int]]]) -> None:
    seats = Seats()
    live: list[tuple[Session, str]] = []
    for act, pick, node, wanted in chosen:
        before = {one.name: one for one in seats.kept() if one.live}
        moved: set[int] = set()
        if act == "join" or not live:
            one = seats.open()
            moved = {one.number}
            live.append((one, node))
            _check_taken(seats, seats.take(one, node, wanted), wanted)
        elif act == "wait":
            seats.now += SECOND
            for one, _ in live:
                seats.sessions[one.number] = seats.sessions[one.number].renewed(seats.now, None)
        else:
            one, node = live[pick % len(live)]
            moved = {one.number}
            if act == "resize":
                _check_taken(seats, seats.take(one, node, wanted), wanted)
            else:
                live.remove((one, node))
                seats.end(one)
                if act == "restart":
                    had = {slot.place: slot.number for slot in seats.kept() if slot.session == one.number}
                    names = {slot.node for slot in seats.kept() if slot.session == one.number}
                    again = seats.open()
                    live.append((again, node))
                    taken = seats.take(again, next(iter(names), node), set(had))
                    assert {slot.place: slot.number for slot in taken} == had, "a restart changed a number"
        after = {one.name: one for one in seats.kept() if one.live}
        kept = {name: one for name, one in before.items() if one.session not in moved}
        assert kept.items() <= after.items(), "a live session lost a slot to another"


def _check_taken(seats: Seats, taken: list[PoolSlot], wanted: set[int]) -> None:
    assert [one.place for one in taken] == sorted(wanted)
    assert len({one.number for one in taken}) == len(taken)
    assert len({one.node for one in taken}) <= 1
    every = seats.kept()
    assert len({one.number for one in every}) == len(every)
    pairs = [(one.node, one.place) for one in every]
    assert len(set(pairs)) == len(pairs), "two slots for one place of a node"


def test_the_numbers_of_a_pool_stay_low() -> None:
    seats = Seats()
    for number in range(6):
        taken = seats.take(seats.open(), f"n{number}", {0, 1})
        assert [one.number for one in taken] == [2 * number, 2 * number + 1]


def test_both_sessions_of_one_process_have_the_node() -> None:
    seats = Seats()
    first = seats.open(pid=7)
    seats.take(first, "n", {0, 1})
    second = seats.open(pid=7)
    taken = seats.take(second, "n", {0, 1})
    assert [(one.number, one.node, one.session) for one in taken] == [(0, "n", 2), (1, "n", 2)]


def test_a_process_that_does_not_say_its_id_is_no_other_session_of_it() -> None:
    seats = Seats()
    first, second = session(1), session(2)
    nameless = [replace(one, info=replace(one.info, pid=0)) for one in (first, second)]
    seats.sessions = {one.number: one for one in nameless}
    seats.take(nameless[0], "n", {0})
    (slot,) = seats.take(nameless[1], "n", {0})
    assert (slot.node, slot.number) == ("n~2", 1)
