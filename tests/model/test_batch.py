"""The line of a lane, and the status of a batch after each change of it and of its items."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.batch import (
    IN_SLOT,
    OVER,
    RECENT,
    STEP,
    Batch,
    BatchAct,
    BatchStatus,
    Cancel,
    Delete,
    Move,
    Pause,
    Requeue,
    Resume,
    Start,
    check_act,
    check_before,
    no_such_batch,
)
from pitboss.model.batching import (
    Place,
    checked_lane,
    completion,
    end_of_line,
    entered,
    listed,
    positions,
    promotable,
    ranks_after,
    recent_since,
    requeued,
    status_wanted,
    status_with,
    unfinished,
    waits,
    wants_back,
)
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.ids import checked_id
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask, Task, TaskError

QUEUED, RUNNING, PAUSING, PAUSED = (
    BatchStatus.QUEUED,
    BatchStatus.RUNNING,
    BatchStatus.PAUSING,
    BatchStatus.PAUSED,
)
CANCELLING, CANCELLED, DONE, ERRORS = (
    BatchStatus.CANCELLING,
    BatchStatus.CANCELLED,
    BatchStatus.DONE,
    BatchStatus.DONE_WITH_ERRORS,
)
LIVE = [status for status in BatchStatus if status not in OVER]
counts = st.dictionaries(st.sampled_from(list(State)), st.integers(1, 5))
statuses = st.sampled_from(list(BatchStatus))
lines = st.lists(st.tuples(st.integers(-50, 50), st.sampled_from(LIVE)), min_size=1, max_size=8).map(
    lambda found: [Place(rank, f"b{number}", status) for number, (rank, status) in enumerate(found)]
)
moves = st.sampled_from(["top", "up", "down", "bottom"])


def batch(status: BatchStatus, name: str = "b", **options: object) -> Batch:
    return msgspec.structs.replace(Batch(id=name, status=status), **options)


@given(statuses, counts)
def test_a_batch_is_over_exactly_when_none_of_its_items_is_open(status: BatchStatus, items: dict[State, int]) -> None:
    after = status_with(status, items)
    if status in OVER:
        assert after is status
    else:
        assert (after in OVER) == (not any(state not in FINISHED for state in items))
    assert status_with(after, items) is after, "looking twice changes nothing"


@pytest.mark.parametrize(
    ("status", "items", "after"),
    [
        (RUNNING, {State.COMPLETED: 2}, DONE),
        (RUNNING, {State.COMPLETED: 2, State.FAILED: 1}, ERRORS),
        (RUNNING, {State.CANCELLED: 2}, DONE),
        (RUNNING, {}, DONE),
        (QUEUED, {State.CANCELLED: 1, State.FAILED: 1}, ERRORS),
        (PAUSED, {State.COMPLETED: 1}, DONE),
        (CANCELLING, {State.FAILED: 1, State.CANCELLED: 4}, CANCELLED),
        (CANCELLING, {State.HELD: 1}, CANCELLING),
        (PAUSING, {State.HELD: 3, State.RUNNING: 1}, PAUSING),
        (PAUSING, {State.HELD: 3, State.COMPLETED: 1}, PAUSED),
        (PAUSING, {State.COMPLETED: 1}, DONE),
        (RUNNING, {State.HELD: 3}, RUNNING),
    ],
)
def test_what_its_items_make_of_it(status: BatchStatus, items: dict[State, int], after: BatchStatus) -> None:
    assert status_with(status, items) is after


@pytest.mark.parametrize(
    ("act", "status", "items", "after"),
    [
        (Pause(), QUEUED, {State.HELD: 1}, PAUSED),
        (Pause(), RUNNING, {State.HELD: 1}, PAUSED),
        (Pause(), RUNNING, {State.RUNNING: 1}, PAUSING),
        (Pause(), PAUSING, {State.RUNNING: 1}, PAUSING),
        (Pause(), PAUSED, {State.HELD: 1}, PAUSED),
        (Resume(), PAUSED, {State.HELD: 1}, QUEUED),
        (Resume(), PAUSING, {State.RUNNING: 1}, RUNNING),
        (Resume(), QUEUED, {State.HELD: 1}, QUEUED),
        (Resume(), RUNNING, {State.HELD: 1}, RUNNING),
        (Start(), QUEUED, {State.HELD: 1}, RUNNING),
        (Start(), PAUSED, {State.HELD: 1}, RUNNING),
        (Cancel(), PAUSED, {State.HELD: 1}, CANCELLING),
        (Cancel(), CANCELLING, {State.RUNNING: 1}, CANCELLING),
        (Cancel(), CANCELLED, {State.CANCELLED: 1}, CANCELLED),
        (Delete(force=True), QUEUED, {State.HELD: 1}, PAUSED),
        (Delete(), DONE, {State.COMPLETED: 1}, DONE),
        (Move(to="top"), QUEUED, {State.HELD: 1}, QUEUED),
        (Requeue(), DONE, {State.COMPLETED: 1}, DONE),
    ],
)
def test_what_an_act_makes_of_it(
    act: BatchAct, status: BatchStatus, items: dict[State, int], after: BatchStatus
) -> None:
    check_act(batch(status, counts=items), act)
    assert status_wanted(act, status, items) is after
    assert status_wanted(act, after, items) is after, "asking twice changes nothing"


@pytest.mark.parametrize(
    ("act", "status"),
    [
        *((act, status) for act in (Pause(), Resume(), Start()) for status in (CANCELLING, CANCELLED, DONE, ERRORS)),
        *((Cancel(), status) for status in (DONE, ERRORS)),
        *((Move(to="top"), status) for status in (RUNNING, PAUSING, CANCELLING, CANCELLED, DONE, ERRORS)),
        (Requeue(), CANCELLING),
        *((Delete(), status) for status in LIVE),
    ],
)
def test_acts_that_a_status_does_not_allow_are_refused(act: BatchAct, status: BatchStatus) -> None:
    with pytest.raises(InvalidInput, match=f"batch b is {status}"):
        check_act(batch(status, counts={State.HELD: 1}), act)


def test_what_runs_is_not_deleted_even_by_force() -> None:
    with pytest.raises(InvalidInput, match="some of its items are running"):
        check_act(batch(RUNNING, counts={State.RUNNING: 1}), Delete(force=True))
    check_act(batch(RUNNING, counts={State.HELD: 1}), Delete(force=True))


def test_an_unknown_batch_is_named() -> None:
    error = no_such_batch("x")
    assert isinstance(error, NotFound)
    assert '"x"' in error.what


@given(lines, st.integers(0, 5))
def test_as_many_are_promoted_as_have_room_and_in_their_order(line: list[Place], most: int) -> None:
    chosen = promotable(line, most)
    taken = sum(place.status in IN_SLOT for place in line)
    queued = [place.id for place in sorted(line) if place.status is QUEUED]
    assert chosen == queued[: len(chosen)]
    assert taken + len(chosen) <= max(most, taken)
    assert len(chosen) == len(queued) or taken + len(chosen) >= most


@given(lines)
def test_positions_have_no_gaps(line: list[Place]) -> None:
    found = positions(line)
    queued = [place.id for place in sorted(line) if place.status is QUEUED]
    assert [found[one] for one in queued] == list(range(1, len(queued) + 1))
    assert {one for one, position in found.items() if position == 0} == {
        place.id for place in line if place.status in IN_SLOT
    }


@given(lines)
def test_a_new_one_stands_behind_all_others(line: list[Place]) -> None:
    new = Place(end_of_line(line), "", QUEUED)
    assert max([*line, new]) is new
    assert end_of_line([]) == STEP


def moved(line: list[Place], ranks: dict[str, int]) -> list[str]:
    return [place.id for place in sorted(place._replace(rank=ranks.get(place.id, place.rank)) for place in line)]


@given(lines, moves, st.data())
def test_a_move_puts_one_where_it_was_asked_and_leaves_the_others_in_their_order(
    line: list[Place], to: str, data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(line))
    before = [place.id for place in sorted(line)]
    after = moved(line, ranks_after(msgspec.convert({"type": "move", "to": to}, Move), own.id, line))
    assert [one for one in after if one != own.id] == [one for one in before if one != own.id]
    queued = {place.id for place in line if place.status is QUEUED and place.id != own.id}
    ahead = [one for one in before[: before.index(own.id)] if one in queued]
    behind = [one for one in before[before.index(own.id) + 1 :] if one in queued]
    now_ahead = [one for one in after[: after.index(own.id)] if one in queued]
    match to:
        case "top":
            assert after[0] == own.id
        case "bottom":
            assert after[-1] == own.id
        case "up":
            assert now_ahead == ahead[:-1]
        case "down":
            assert now_ahead == ahead + behind[:1]


@given(lines, st.data())
def test_a_move_before_another_puts_it_right_there(line: list[Place], data: st.DataObject) -> None:
    own, other = data.draw(st.sampled_from(line)), data.draw(st.sampled_from(line))
    if own.id != other.id:
        after = moved(line, ranks_after(Move(to="before", before=other.id), own.id, line))
        assert after.index(other.id) == after.index(own.id) + 1


def test_a_move_changes_one_row_until_no_rank_is_free_between() -> None:
    line = [Place(STEP * number, f"b{number}", QUEUED) for number in (1, 2, 3)]
    assert ranks_after(Move(to="up"), "b3", line) == {"b3": STEP * 3 // 2}
    tight = [Place(5, "a", QUEUED), Place(6, "b", QUEUED), Place(7, "c", PAUSED)]
    assert ranks_after(Move(to="before", before="b"), "c", tight) == {"a": STEP, "c": 2 * STEP, "b": 3 * STEP}


def test_a_batch_that_is_there_already_does_not_change() -> None:
    line = [Place(1, "a", QUEUED), Place(9, "b", QUEUED)]
    for act, one in ((Move(to="top"), "a"), (Move(to="up"), "a"), (Move(to="down"), "b"), (Move(to="bottom"), "b")):
        assert ranks_after(act, one, line) == {}
    assert ranks_after(Move(to="top"), "a", line[:1]) == {}


def test_who_resumes_goes_to_its_old_place_or_to_an_end() -> None:
    line = [Place(1, "a", QUEUED), Place(5, "b", PAUSED), Place(9, "c", QUEUED)]
    assert ranks_after(Resume(), "b", line) == {}
    assert ranks_after(Resume(at="top"), "b", line) == {"b": 1 - STEP}
    assert ranks_after(Resume(at="bottom"), "b", line) == {"b": 9 + STEP}


def test_a_move_goes_before_a_batch_of_the_same_line_only() -> None:
    own = batch(QUEUED)
    check_before(own, batch(PAUSED, "c"))
    for other in (None, own, batch(RUNNING, "c"), batch(DONE, "c"), batch(QUEUED, "c", lane="other")):
        with pytest.raises(InvalidInput, match="cannot be moved before"):
            check_before(own, other)


@pytest.mark.parametrize("status", [status for status in BatchStatus if status is not RUNNING])
def test_items_of_a_batch_that_does_not_run_are_held(status: BatchStatus) -> None:
    for known in (True, False):
        for run_at in (None, 5, 50):
            assert waits(status, known=known, run_at=run_at, now=10) == (State.HELD, "batch")


@pytest.mark.parametrize("status", [RUNNING, None])
def test_other_tasks_wait_for_their_handler_or_their_time(status: BatchStatus | None) -> None:
    assert waits(status, known=False, run_at=50, now=10) == (State.HELD, "handler")
    assert waits(status, known=True, run_at=50, now=10) == (State.SCHEDULED, None)
    assert waits(status, known=True, run_at=10, now=10) == (State.PENDING, None)
    assert waits(status, known=True, run_at=None, now=10) == (State.PENDING, None)


def test_batches_are_shown_slots_first_then_the_line_the_paused_and_the_ended() -> None:
    known = [
        batch(DONE, "old", finished_at=1),
        batch(CANCELLED, "new", finished_at=2),
        batch(PAUSED, "paused", rank=1),
        batch(QUEUED, "second", rank=9),
        batch(QUEUED, "first", rank=3),
        batch(QUEUED, "z-lane", lane="a", rank=99),
        batch(PAUSING, "slot", rank=50),
    ]
    assert [one.id for one in listed(known)] == ["slot", "z-lane", "first", "second", "paused", "new", "old"]


def test_the_task_at_the_end_is_told_which_batch_ended_and_how() -> None:
    made = completion(NewTask(id="t", handler="h", params='{"a":1,"status":"mine"}'), "b", ERRORS, 1)
    assert made.params == '{"a":1,"batch":"b","status":"done_with_errors"}'
    assert (made.id, made.handler) == ("t", "h")


def test_each_run_has_a_task_at_its_end_which_is_told_the_number_if_it_takes_one() -> None:
    task = NewTask(id="01900000-0000-7000-8000-0000000000aa", handler="h", params='{"run":1}')
    made = [completion(task, "b", DONE, run) for run in (1, 2, 3)]
    assert [one.params for one in made] == [f'{{"batch":"b","run":{run},"status":"done"}}' for run in (1, 2, 3)]
    assert made[0].id == task.id
    assert len({checked_id(one.id) for one in made}) == 3
    own = NewTask(id=task.id, handler="h", params='{"run":"nightly"}')
    assert completion(own, "b", DONE, 2).params == '{"batch":"b","run":"nightly","status":"done"}'


def test_a_batch_starts_once_and_puts_its_task_when_it_ends() -> None:
    batch = Batch(id="b", on_complete=NewTask(id="n", handler="note", params="{}"))
    running, nothing = entered(batch, RUNNING, 10)
    assert (running, nothing) == (msgspec.structs.replace(batch, status=RUNNING, started_at=10), None)
    assert entered(entered(running, PAUSED, 20).batch, RUNNING, 30).batch.started_at == 10
    done, note = entered(running, DONE, 40)
    assert (done.finished_at, done.reason) == (40, None)
    assert note is not None
    assert note.params == '{"batch":"b","status":"done"}'


def test_the_reason_of_a_pause_ends_with_it_and_that_of_a_cancellation_stays() -> None:
    running = Batch(id="b", status=RUNNING)
    pausing = entered(running, PAUSING, 1, "the site is down").batch
    paused = entered(pausing, PAUSED, 2).batch
    assert (pausing.reason, paused.reason) == ("the site is down", "the site is down")
    assert entered(paused, QUEUED, 3).batch.reason is None
    assert entered(paused, CANCELLING, 3).batch.reason is None
    cancelling = entered(paused, CANCELLING, 3, "asked").batch
    assert (cancelling.reason, entered(cancelling, CANCELLED, 4).batch.reason) == ("asked", "asked")


def test_a_batch_that_is_requeued_has_not_begun() -> None:
    batch = Batch(id="b", status=DONE, rank=1, started_at=10, finished_at=20, reason="asked", name="n")
    assert requeued(batch, 7) == Batch(id="b", status=QUEUED, rank=7, name="n", run=2)


def test_a_requeue_means_failures_by_any_of_their_names_and_the_cancelled_if_said() -> None:
    def item(state: State, category: str = "net", kind: str = "OSError", fingerprint: str = "f") -> Task:
        wrong = TaskError(category=category, message="m", type=kind, fingerprint=fingerprint)
        return Task(id="t", handler="h", queue="q", state=state, params="{}", error=wrong)

    failed, cancelled = item(State.FAILED), item(State.CANCELLED)
    assert all(wants_back(Requeue(error=name), failed) for name in (None, "net", "OSError", "f"))
    assert not wants_back(Requeue(error="ssl"), failed)
    assert not wants_back(Requeue(error="m"), failed)
    assert not wants_back(Requeue(), cancelled)
    assert wants_back(Requeue(cancelled=True, error="ssl"), cancelled)
    assert not any(wants_back(Requeue(cancelled=True), item(state)) for state in State if not state.finished)
    assert not wants_back(Requeue(cancelled=True), item(State.COMPLETED))


def test_recent_is_the_last_five_minutes_or_since_the_start() -> None:
    assert recent_since(None, RECENT + 5) == 5
    assert recent_since(3, RECENT + 5) == 5
    assert recent_since(9, RECENT + 5) == 9


@given(counts)
def test_open_items_are_those_that_have_not_finished(items: dict[State, int]) -> None:
    shown = batch(RUNNING, counts=items)
    assert unfinished(items) == shown.left == shown.total - shown.finished


def test_a_lane_takes_no_negative_number() -> None:
    assert checked_lane(0) == 0
    with pytest.raises(InvalidInput, match="max_running"):
        checked_lane(-1)
