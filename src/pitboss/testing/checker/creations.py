"""Every acknowledged task exists and no other, and follow-ups exist exactly if their settlement was accepted."""

from collections.abc import Iterator

from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, WAITING
from pitboss.model.task import NewTask, Task
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Creation, Evidence
from pitboss.testing.checker.violation import Violation, of_task, shown

NOT_LOST = "no acknowledged put is lost, and nothing appears unasked"
FOLLOW_UPS = "follow-up tasks exist if and only if their settlement was accepted"
_SAME = ("handler", "queue", "params", "priority", "max_attempts", "timeout", "tags", "parent")


def check_creations(seen: Evidence) -> Iterator[Violation]:
    for task in seen.ids:
        yield from of_task(seen.calls, task, _faults(seen, task))
    yield from _check_pruned(seen)


def _faults(seen: Evidence, task: TaskId) -> Iterator[tuple[str, str]]:
    creations, known = seen.creations.get(task, []), seen.tasks.get(task)
    if known is None:
        yield from _missing(seen, task, creations)
        return
    if not creations:
        yield NOT_LOST, "it is in the ledger, but was never put"
        return
    if not any(_may_have_come(creation) for creation in creations):
        refused = any(creation.follows is not None for creation in creations)
        yield (
            (FOLLOW_UPS if refused else NOT_LOST),
            "it is in the ledger, but every call that would have put it was refused",
        )
    if not any(creation.notice for creation in creations):
        yield from _changed(known, creations[0].new)
    for creation in creations:
        if creation.created and creation.placed is not None and creation.placed.state not in WAITING:
            yield NOT_LOST, f"it was created as {creation.placed.state}"


def _may_have_come(creation: Creation) -> bool:
    if creation.follows is not None:
        return not creation.follows.refused
    return creation.call.phase != "fail"


def _missing(seen: Evidence, task: TaskId, creations: list[Creation]) -> Iterator[tuple[str, str]]:
    for creation in creations:
        acknowledged = creation.placed is not None
        followed = creation.follows is not None and creation.follows.applied
        if not acknowledged and not (followed and _must_exist(seen, creation)):
            continue
        if seen.prunes.may_have(task, creation.call.begun) and _may_be_finished(seen, task):
            continue
        yield (FOLLOW_UPS if followed else NOT_LOST), "it was acknowledged, but is not in the ledger"
        return


def _must_exist(seen: Evidence, creation: Creation) -> bool:
    """False if the follow-up may have met another task by its key, or came with a repeat, which writes none."""
    follows = creation.follows
    if creation.new.unique is not None or follows is None:
        return False
    mine = follows.settlement
    return not any(
        one.settlement.token == mine.token and not one.refused and one.settlement != mine
        for one in seen.written[mine.id]
    )


def _may_be_finished(seen: Evidence, task: TaskId) -> bool:
    ended = any(not one.refused and one.settlement.transition.state in FINISHED for one in seen.written.get(task, ()))
    return ended or seen.may_be_cancelled(task, 0) or seen.may_run_out(task)


def _changed(known: Task, new: NewTask) -> Iterator[tuple[str, str]]:
    different = [field for field in _SAME if getattr(known, field) != getattr(new, field)]
    if different:
        yield NOT_LOST, f"it is not stored as it was put: {', '.join(different)} differ"


def _check_pruned(seen: Evidence) -> Iterator[Violation]:
    prunes = [call for call in seen.calls if isinstance(call.act, acts.Prune) and call.phase != "fail"]
    if any(call.unknown for call in prunes):
        return
    pruned = sum(call.act.changed.changed for call in prunes if isinstance(call.act, acts.Prune) and call.act.changed)
    gone = [
        task
        for task, creations in seen.creations.items()
        if task not in seen.tasks and any(creation.placed is not None for creation in creations)
    ]
    if len(gone) > pruned:
        yield Violation(
            invariant=NOT_LOST,
            what=f"{len(gone)} acknowledged tasks are gone, but only {pruned} were pruned",
            lines=tuple(shown(call, f"prune → {getattr(call.act, 'changed', None)}") for call in prunes),
        )
