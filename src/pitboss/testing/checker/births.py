"""What was put is there, what was not is not, and follow-ups share the fate of their settlement."""

from collections.abc import Iterator

from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, WAITING
from pitboss.model.task import NewTask, Task
from pitboss.testing import history as told
from pitboss.testing.checker.evidence import Birth, Evidence
from pitboss.testing.checker.violation import Violation, shown, story

NOT_LOST = "no acknowledged put is lost, and nothing appears unasked"
FOLLOW_UPS = "follow-up tasks exist if and only if their settlement was accepted"
_SAME = ("handler", "queue", "params", "priority", "max_attempts", "timeout", "tags", "parent")


def check_births(seen: Evidence) -> Iterator[Violation]:
    for task in seen.ids:
        for invariant, what in _faults(seen, task):
            yield Violation(invariant=invariant, what=f"task {task}: {what}", task=task, events=story(seen.calls, task))
    yield from _check_pruned(seen)


def _faults(seen: Evidence, task: TaskId) -> Iterator[tuple[str, str]]:
    births, known = seen.births.get(task, []), seen.tasks.get(task)
    if known is None:
        yield from _missing(seen, task, births)
        return
    if not births:
        yield NOT_LOST, "it stands in the ledger, but nobody put it"
        return
    if not any(_may_have_come(birth) for birth in births):
        refused = any(birth.follows is not None for birth in births)
        yield (FOLLOW_UPS if refused else NOT_LOST), "it stands in the ledger, but what would have put it was refused"
    if not any(birth.notice for birth in births):
        yield from _changed(known, births[0].new)
    for birth in births:
        if birth.created and birth.placed is not None and birth.placed.state not in WAITING:
            yield NOT_LOST, f"it came into being as {birth.placed.state}"


def _may_have_come(birth: Birth) -> bool:
    if birth.follows is not None:
        return not birth.follows.refused
    return birth.call.phase != "fail"


def _missing(seen: Evidence, task: TaskId, births: list[Birth]) -> Iterator[tuple[str, str]]:
    for birth in births:
        acknowledged = birth.placed is not None
        followed = birth.follows is not None and birth.follows.applied
        if not acknowledged and not (followed and _must_exist(seen, birth)):
            continue
        if seen.prunes.may_have(task, birth.call.begun) and _may_be_finished(seen, task):
            continue
        yield (FOLLOW_UPS if followed else NOT_LOST), "it was acknowledged, but does not stand in the ledger"
        return


def _must_exist(seen: Evidence, birth: Birth) -> bool:
    """A follow-up may have met another task by its key; and a repeat with other follow-ups writes none."""
    follows = birth.follows
    if birth.new.unique is not None or follows is None:
        return False
    mine = follows.settlement
    return not any(
        one.settlement.token == mine.token and not one.refused and one.settlement != mine
        for one in seen.written[mine.id]
    )


def _may_be_finished(seen: Evidence, task: TaskId) -> bool:
    ended = any(not one.refused and one.settlement.transition.state in FINISHED for one in seen.written.get(task, ()))
    return ended or seen.may_be_cancelled(task, 0)


def _changed(known: Task, new: NewTask) -> Iterator[tuple[str, str]]:
    different = [field for field in _SAME if getattr(known, field) != getattr(new, field)]
    if different:
        yield NOT_LOST, f"it was put otherwise than it is stored: {', '.join(different)}"


def _check_pruned(seen: Evidence) -> Iterator[Violation]:
    prunes = [call for call in seen.calls if isinstance(call.act, told.Prune) and call.phase != "fail"]
    if any(call.unknown for call in prunes):
        return
    pruned = sum(call.act.changed.changed for call in prunes if isinstance(call.act, told.Prune) and call.act.changed)
    gone = [
        task
        for task, births in seen.births.items()
        if task not in seen.tasks and any(birth.placed is not None for birth in births)
    ]
    if len(gone) > pruned:
        yield Violation(
            invariant=NOT_LOST,
            what=f"{len(gone)} acknowledged tasks are gone, but only {pruned} were pruned",
            events=tuple(shown(call, f"prune → {getattr(call.act, 'changed', None)}") for call in prunes),
        )
