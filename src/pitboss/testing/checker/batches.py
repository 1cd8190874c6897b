"""Promises about batches: figures equal a recount, lanes are not overfull, and each batch ends once."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from pitboss.model.batch import OVER, Batch, BatchId, BatchStatus, Pause, Requeue, Resume, Start
from pitboss.model.batch import Delete as Deletion
from pitboss.model.states import State
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Evidence
from pitboss.testing.checker.violation import Violation, shown
from pitboss.testing.history import FOREVER, Call

COUNTS = "a batch's figures equal a recount of its items"
LANES = "a lane runs no more batches than it may"
ENDS_ONCE = "a batch ends once, when its last item has ended"
STOPPED = "no item starts of a batch that is paused"
# A batch that is being cancelled may never have had a slot.
_RUNNING = (BatchStatus.RUNNING, BatchStatus.PAUSING)


def check_batches(seen: Evidence) -> Iterator[Violation]:
    # Creating a batch that exists answers with the existing one, whose lane counts.
    lanes = {act.created.id: act.created.lane for _, act in _creations(seen) if act.created is not None}
    yield from _check_counts(seen)
    yield from _check_items(seen)
    yield from _check_slots(seen, lanes)
    yield from _check_ends(seen)
    yield from _check_notices(seen)
    yield from _check_pauses(seen)


def _creations(seen: Evidence) -> Iterator[tuple[Call, acts.CreateBatch]]:
    for call in seen.calls:
        if isinstance(call.act, acts.CreateBatch):
            yield call, call.act


def _check_counts(seen: Evidence) -> Iterator[Violation]:
    recount: dict[str, Counter[State]] = defaultdict(Counter)
    for task in seen.final.tasks:
        if task.batch is not None:
            recount[task.batch][task.state] += 1
    for batch in seen.final.batches:
        items = recount.pop(batch.id, Counter())
        if batch.counts != dict(items):
            yield _fault(seen, COUNTS, batch.id, f"it shows {dict(batch.counts)}, its items are {dict(items)}")
        if (batch.status in OVER) != (batch.left == 0):
            yield _fault(seen, ENDS_ONCE, batch.id, f"it is {batch.status} with {batch.left} items left")
    for left in recount:
        yield _fault(seen, COUNTS, left, "its items exist, but the batch does not")


def _check_items(seen: Evidence) -> Iterator[Violation]:
    """The items that were created with a batch exist as long as the batch does."""
    there = Counter(task.batch for task in seen.final.tasks)
    known = {batch.id for batch in seen.final.batches}
    for _, act in _creations(seen):
        created = act.created
        if created is None or _acts(seen, created.id, Deletion):
            continue
        if created.id not in known:
            yield _fault(seen, COUNTS, created.id, "it was acknowledged, but does not exist")
        elif there[created.id] != created.total or created.total < _surely_new(seen, act):
            what = f"{len(act.items)} items were put, {created.total} acknowledged, {there[created.id]} exist"
            yield _fault(seen, COUNTS, created.id, what)


def _surely_new(seen: Evidence, act: acts.CreateBatch) -> int:
    """How many of the items cannot have met another task."""
    if sum(other.batch.id == act.batch.id for _, other in _creations(seen)) > 1:
        return 0
    return len({new.id for new in act.items if new.unique is None and len(seen.creations[new.id]) == 1})


def _check_slots(seen: Evidence, lanes: dict[BatchId, str]) -> Iterator[Violation]:
    """Batches run together if one claim got items of each, or if one read shows them all running."""
    for call in seen.calls:
        running: set[BatchId] = set()
        match call.act:
            case acts.Claim(claimed=claimed) if claimed is not None:
                running = {claim.batch for claim in claimed.claims if claim.batch is not None}
            case acts.ReadBatches(batches=batches):
                running = {batch.id for batch in batches if batch.status in _RUNNING}
            case _:
                continue
        counted = Counter(lanes[batch] for batch in running if batch in lanes)
        for lane, count in counted.items():
            most = _most_running(seen, lane, call, lanes)
            if most is not None and count > most:
                lines = tuple(f"{batch} of lane {lanes[batch]}" for batch in sorted(running))
                what = f"{count} batches of lane {lane} run at once, but only {most} may"
                yield Violation(invariant=LANES, what=what, lines=(shown(call, "all of them at once:"), *lines))
                return


def _most_running(seen: Evidence, lane: str, during: Call, lanes: dict[BatchId, str]) -> int | None:
    """The most that the lane may have run; None after an operator started a batch by force."""
    most = 1
    for call in seen.calls:
        match call.act:
            case acts.ActOnBatch(batch=batch, act=Start()) if lanes.get(batch) == lane and call.begun < during.ended:
                return None
            case acts.ChangeLane(name=name, max_running=wanted) if name == lane and call.begun < during.ended:
                # A lower number stops no running batch.
                most = max(most, wanted)
            case _:
                continue
    return most


def _seen_statuses(seen: Evidence) -> Iterator[tuple[Call, Batch]]:
    for call in seen.calls:
        match call.act:
            case acts.CreateBatch(created=batch) if batch is not None:
                yield call, batch
            case acts.ActOnBatch(changed=changed) if changed is not None and changed.batch is not None:
                yield call, changed.batch
            case acts.ReadBatches(batches=batches):
                for batch in batches:
                    yield call, batch
            case _:
                continue


def _check_ends(seen: Evidence) -> Iterator[Violation]:
    """An ended batch stays as it ended, unless an operator requeues or retries its items."""
    ended: dict[BatchId, tuple[Call, Batch]] = {}
    last = Call("", FOREVER, FOREVER, "ok", acts.ReadBatches(), None, None, None)
    for call, batch in [*_seen_statuses(seen), *((last, batch) for batch in seen.final.batches)]:
        before = ended.get(batch.id)
        if before is not None and before[0].ended < call.begun and not _may_reopen(seen, batch.id, before[0], call):
            was = before[1]
            if (batch.status, batch.finished_at) != (was.status, was.finished_at):
                what = (
                    f"it had ended as {was.status} at {was.finished_at}, and is {batch.status} at {batch.finished_at}"
                )
                yield _fault(seen, ENDS_ONCE, batch.id, what)
        if batch.status in OVER:
            ended[batch.id] = (call, batch)
        else:
            ended.pop(batch.id, None)


def _may_reopen(seen: Evidence, batch: BatchId, after: Call, before: Call) -> bool:
    requeued = any(call.ended > after.begun and call.begun < before.ended for call in _acts(seen, batch, Requeue))
    return requeued or any(seen.retries.may_have(item, after.begun, before.ended) for item in seen.items[batch])


def _check_notices(seen: Evidence) -> Iterator[Violation]:
    """A batch that has ended has put its notice; a batch that cannot have ended has not."""
    for call, act in _creations(seen):
        notice = act.batch.on_complete
        batch = next((one for one in seen.final.batches if one.id == act.batch.id), None)
        if notice is None or batch is None:
            continue
        may_be_pruned = seen.prunes.may_have(notice.id, call.begun)
        if batch.status in OVER and notice.id not in seen.tasks and not may_be_pruned:
            yield _fault(seen, ENDS_ONCE, batch.id, "it has ended, but its notice was not put")
        reopened = _may_reopen(seen, batch.id, call, call._replace(ended=FOREVER))
        if batch.status not in OVER and notice.id in seen.tasks and not reopened:
            yield _fault(seen, ENDS_ONCE, batch.id, "it has not ended, but its notice was put")


def _check_pauses(seen: Evidence) -> Iterator[Violation]:
    stopped = (BatchStatus.PAUSED, BatchStatus.PAUSING)
    for call in seen.calls:
        act = call.act
        if not isinstance(act, acts.ActOnBatch) or not isinstance(act.act, Pause) or act.changed is None:
            continue
        if act.changed.batch is None or act.changed.batch.status not in stopped:
            continue
        restarts = [one for one in _acts(seen, act.batch, Resume, Start, Requeue) if one.ended > call.begun]
        until = min([one.begun for one in restarts], default=FOREVER)
        for other in seen.calls:
            if isinstance(other.act, acts.Claim) and call.ended < other.begun and other.ended < until:
                claims, slots = other.act.claimed.claims if other.act.claimed else [], other.act.request.slots
                given = [claim for claim in claims if slots[claim.slot].repeat is None]
                # A retried item may have ended the batch and put it back in line meanwhile.
                if any(claim.batch == act.batch for claim in given) and not _may_reopen(seen, act.batch, call, other):
                    yield _fault(seen, STOPPED, act.batch, "one of its items was claimed after it was paused")
                    return


def _acts(seen: Evidence, batch: BatchId, *kinds: type) -> list[Call]:
    return [
        call
        for call in seen.calls
        if isinstance(call.act, acts.ActOnBatch)
        and call.act.batch == batch
        and isinstance(call.act.act, kinds)
        and call.phase != "fail"
    ]


def _fault(seen: Evidence, invariant: str, batch: BatchId, what: str) -> Violation:
    lines = [line for call in seen.calls for line in _lines(call, batch)]
    return Violation(invariant=invariant, what=f"batch {batch}: {what}", lines=tuple(lines[-40:]))


def _lines(call: Call, batch: BatchId) -> Iterator[str]:
    match call.act:
        case acts.CreateBatch(batch=new, items=items) if new.id == batch:
            yield shown(call, f"create {batch} in lane {new.lane} with {len(items)} items")
        case acts.ActOnBatch(batch=named, act=act, changed=changed) if named == batch:
            status = changed.batch.status if changed and changed.batch else "?"
            yield shown(call, f"{act} → {status}")
        case acts.ReadBatches(batches=batches):
            for one in batches:
                if one.id == batch:
                    yield shown(call, f"read {one.status} {dict(one.counts)} finished at {one.finished_at}")
        case _:
            return
