"""A partition key with an exclusive owner has one owner at a time."""

from collections import defaultdict
from collections.abc import Iterator

from pitboss.model.ids import TaskId
from pitboss.model.partition import Partitioning, partition_key
from pitboss.model.pool_slot import slot_name
from pitboss.testing.checker.evidence import Evidence, GivenClaim
from pitboss.testing.checker.violation import Violation, story
from pitboss.testing.history import FOREVER, OpenSession

ONE_OWNER = "never two live owners of a key"
# Host, boot and process id.
_Process = tuple[str, str, int]


def check_owners(seen: Evidence) -> Iterator[Violation]:
    """No slot gets a task of a key while one runs under another slot whose session is alive, or in another worker of
    the same slot.

    The settings of the queues at the end count. With `steal` any slot may take tasks of a key whose slot is missing.
    """
    specs = {queue.name: queue.partitions for queue in seen.final.queues if queue.partitions is not None}
    owned = {name: spec for name, spec in specs.items() if spec.exclusive and spec.on_missing != "steal"}
    if not owned:
        return
    processes = _processes(seen)
    for (queue, key), claims in _by_key(seen, owned).items():
        running: list[GivenClaim] = []
        for other in sorted(claims, key=lambda one: one.call.begun):
            running = [one for one in running if _ended_from(seen, one) > other.call.begun]
            for one in running:
                if _owner(one, processes) != _owner(other, processes) and _runs_beside(seen, one, other):
                    yield Violation(
                        invariant=ONE_OWNER,
                        what=f"queue {queue}, key {key!r}: {_told(other)} while {_told(one)} ran",
                        task=other.claim.id,
                        queue=queue,
                        lines=story(seen.calls, one.claim.id) + story(seen.calls, other.claim.id),
                    )
            running.append(other)


def _by_key(seen: Evidence, specs: dict[str, Partitioning]) -> dict[tuple[str, str], list[GivenClaim]]:
    found: dict[tuple[str, str], list[GivenClaim]] = defaultdict(list)
    for task, claims in seen.given.items():
        # A claim that is given again is the same run.
        for one in {one.claim.token: one for one in reversed(claims)}.values():
            key = _key(seen, task, one, specs)
            if key is not None:
                found[one.claim.queue, key].append(one)
    return found


def _key(seen: Evidence, task: TaskId, one: GivenClaim, specs: dict[str, Partitioning]) -> str | None:
    if one.claim.queue not in specs:
        return None
    known = seen.tasks.get(task)
    return partition_key(specs[one.claim.queue].by, one.claim.params) if known is None else known.partition


def _runs_beside(seen: Evidence, one: GivenClaim, other: GivenClaim) -> bool:
    """Whether one surely ran, under a live session, when the other was given; if the calls overlap, in either order."""
    if not _surely_runs(seen, one, other):
        return False
    return one.call.ended < other.call.begun or _surely_runs(seen, other, one)


def _surely_runs(seen: Evidence, one: GivenClaim, when: GivenClaim) -> bool:
    if _ended_from(seen, one) < when.call.ended:
        return False
    limit = seen.time_limit(one.claim.id, one.claim.token)
    if limit is not None:
        return when.claim.claimed_at < limit.surely_until(when.call.begun)
    return not seen.lives[one.claim.token.session].may_be_dead(when.claim.claimed_at, when.call.ended)


def _ended_from(seen: Evidence, one: GivenClaim) -> int:
    """When the first call began that may have ended this claim."""
    return min(
        (
            written.call.begun
            for written in seen.written.get(one.claim.id, ())
            if written.settlement.token == one.claim.token and not written.is_progress and not written.refused
        ),
        default=FOREVER,
    )


def _processes(seen: Evidence) -> dict[int, _Process]:
    """The process of each session that says it: a manager that changes its session is the same owner."""
    opened = [call.act.session for call in seen.calls if isinstance(call.act, OpenSession)]
    return {
        one.number: (one.info.host, one.info.boot_id, one.info.pid)
        for one in opened
        if one is not None and one.info.pid
    }


def _owner(one: GivenClaim, processes: dict[int, _Process]) -> tuple[_Process | int, str | None, str]:
    session, slot = one.claim.token.session, one.slot
    name = None if slot.number is None else slot_name(slot.pool, slot.number)
    return processes.get(session, session), name, slot.worker


def _told(one: GivenClaim) -> str:
    slot = "a slot without a number" if one.slot.number is None else slot_name(one.slot.pool, one.slot.number)
    worker = f"worker {one.slot.worker}, " if one.slot.worker else ""
    return f"{one.claim.id} of {slot} ({worker}session {one.claim.token.session})"


__all__ = ["check_owners"]
