"""Announces what happens to workers and pools: to people, to the log file, and to the app's hooks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pitboss.engines.protocol import Clock
from pitboss.manager import host
from pitboss.manager.worker_process import WorkerProcess
from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.errors import Refused
from pitboss.model.facts import AnyFact, PoolScaled, WorkerCrashed, WorkerGivenUp, WorkerStarted
from pitboss.model.happening import Kind
from pitboss.model.outcome import poisons
from pitboss.model.outdone import SentAway
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_rules import changes_text, differences, key_text
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.resource import Declaration, PoolRules, ResourcePool
from pitboss.model.task import Claim, TaskError
from pitboss.model.text import ranges


class Log(Protocol):
    """A structured log."""

    def info(self, event: str, **facts: Any) -> Any: ...

    def warning(self, event: str, **facts: Any) -> Any: ...

    def error(self, event: str, **facts: Any) -> Any: ...


class Announcer:
    """`tell` gets sentences for people, `publish` facts for hooks, `log` (if set) lines for the log file."""

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell, self._clock = tell, clock
        self._host = host.name()
        self.publish: Callable[[AnyFact], None] = lambda _fact: None
        self.log: Log | None = None
        # Gets what belongs in the log of happenings and is not a fact.
        self.note: Callable[[Kind, str, str], None] = lambda kind, subject, text: None
        self._told_broken: dict[str, str] = {}

    def say(self, text: str) -> None:
        self._tell(text)
        self._write(text)

    def warn(self, text: str) -> None:
        """As `say`, for something that a person should look at."""
        self._tell(text)
        if self.log is not None:
            self.log.warning(text)

    def declared(self, name: str, rules: PoolRules, before: Declaration | None) -> None:
        """A declaration that changes the rules of a resource pool."""
        if before is not None and (changes := differences(before.rules, rules)):
            whose = f" (before: declared by {before.by})" if before.by else ""
            text = f"resource pool {name}: what this app declares changes its rules: {changes_text(changes)}{whose}"
            self._tell(text)
            self.note(Kind.LIMITS_CHANGED, f"resource pool {name}", text)
            self._write("pool rules changed", pool=name, changes=changes_text(changes), declared_before_by=before.by)

    def limits_changed(self, queue: str, changes: str) -> None:
        """A declaration that changes limits or partitions of a queue."""
        text = f"queue {queue}: what this app declares changes its settings: {changes}"
        self.say(text)
        self.note(Kind.LIMITS_CHANGED, f"queue {queue}", text)

    def limited(self, pools: Iterable[ResourcePool]) -> None:
        """Limits of an operator that hold over what the app declares."""
        for pool in pools:
            if pool.limited is not None:
                keys = ", ".join(key_text(key, value) for key, value in pool.limited.values.items())
                whose = f" (by {pool.limited.by})" if pool.limited.by else ""
                self.say(
                    f"resource pool {pool.name}: limits set by an operator hold over the app's own: {keys}{whose}; "
                    f"pitboss resources limit {pool.name} --reset ends that"
                )

    def started(self, worker: WorkerProcess, spec: PoolSpec) -> None:
        self._tell(f"worker {worker.name} is ready (pid {worker.pid})")
        self._write("worker started", pool=spec.name, worker=worker.name, worker_pid=worker.pid)
        self._told_broken.pop(spec.name, None)
        self.publish(WorkerStarted(worker=worker.name, pid=worker.pid, **self._common(spec.name)))

    def ended(self, worker: WorkerProcess, error: TaskError | None, lost: list[Claim], *, others: bool) -> None:
        """An unexpected end is a crash; any other is only a line in the log. `others` of its pool are alive."""
        pool = worker.spec.pool
        if error is None or worker.blameless or worker.broken is not None:
            self._write("worker ended", pool=pool, worker=worker.name, worker_pid=worker.pid, code=worker.code)
            return
        text = error.message.partition(" while it ran")[0]
        where = "go to other workers" if others else "wait for the next worker"
        poisoned = [claim for claim in lost if poisons(claim, worker.task_outcome, len(lost))]
        back = f"; {again} task(s) {where}" if (again := len(lost) - len(poisoned)) else ""
        back += f"; {len(poisoned)} task(s) set aside as poison: pitboss dead list" if poisoned else ""
        # If the manager killed it, that was announced already.
        if worker.kill_reason is None or lost:
            self._tell(f"{text}{back}")
        if self.log is not None:
            self.log.error(
                "worker crashed",
                pool=pool,
                worker=worker.name,
                worker_pid=worker.pid,
                code=worker.code,
                why=text,
                stack=worker.stack,
                tasks=[task_facts(claim) for claim in lost],
            )
        fact = WorkerCrashed(
            worker=worker.name,
            pid=worker.pid,
            error=error,
            code=worker.code,
            lost=tuple(claim.id for claim in lost),
            poisoned=tuple(claim.id for claim in poisoned),
            **self._common(pool),
        )
        self.publish(fact)

    def given_up(self, name: str, spec: PoolSpec, why: str, crashes: int) -> None:
        # All workers of a pool load the same code: if it cannot be loaded, say so once.
        if self._told_broken.get(spec.name) != why:
            self._told_broken[spec.name] = why
            self._tell(f"worker {name} stays down: {why}. Try again with: pitboss pools restart {spec.name}")
        if self.log is not None:
            self.log.error("worker given up", pool=spec.name, worker=name, why=why, crashes=crashes)
        self.publish(WorkerGivenUp(worker=name, why=why, crashes=crashes, **self._common(spec.name)))

    def scaled(self, pool: str, before: int, after: int, why: str) -> None:
        if before:
            self._tell(f"pool {pool} goes from {before} to {after} worker(s): {why or 'configured'}")
        self._write("pool scaled", pool=pool, before=before, after=after, why=why)
        self.publish(PoolScaled(before=before, after=after, why=why, **self._common(pool)))

    def clock_set(self, step: Span) -> None:
        """The wall clock was set. The store's clock goes on by itself."""
        size = spoken(round(abs(step) / SECOND) * SECOND)
        self.say(
            f"the clock was set {'ahead' if step > 0 else 'back'} by {size}; tasks with a time of day "
            "follow it, and everything else goes on as before"
        )

    def slots_taken(self, pool: str, slots: Sequence[PoolSlot]) -> None:
        """The workers of a pool have these slots, by place."""
        node = slots[0].node if slots else ""
        if slots:
            # Workers are named from 1 on.
            workers, numbers = ranges(one.place + 1 for one in slots), ranges(one.number for one in slots)
            verb = "worker {} is slot {}" if len(slots) == 1 else "workers {} are slots {}"
            self._tell(f"pool {pool}: {verb.format(workers, numbers)} (node {node})")
        self._write("slots taken", pool=pool, node=node, slots={str(one.place + 1): one.number for one in slots})

    def slots_refused(self, error: Refused) -> None:
        """The workers of a pool get no slots, and so no tasks of keys."""
        self.warn(f"{error.what}: {error.why}; its workers take no tasks of keys until then. {error.fix}")

    def sent_away(self, member: SentAway) -> None:
        """A member of a resource pool was found to be at fault."""
        away = spoken(max(1, round((member.until - self._clock.now()) / SECOND)) * SECOND)
        self._tell(f"{member.resource} is not used for {away}: it {member.why}")
        if self.log is not None:
            self.log.warning("resource sent away", resource=member.resource, away=away, why=member.why)

    def waiting_for(self, claims: list[Claim], seconds: float) -> None:
        counts = Counter(claim.handler for claim in claims)
        listed = ", ".join(f"{count} × {name}" for name, count in sorted(counts.items()))
        self.say(f"waiting up to {seconds:g} s for {len(claims)} running task(s): {listed}. Stop again to end now.")

    def _common(self, pool: str) -> dict[str, Any]:
        return {"pool": pool, "host": self._host, "at": self._clock.wall()}

    def _write(self, message: str, **facts: Any) -> None:
        if self.log is not None:
            self.log.info(message, **facts)


def task_facts(claim: Claim) -> dict[str, Any]:
    """Which task: the fields by which `pitboss logs --task` and `--batch` find a line."""
    known = {"task_id": claim.id, "handler": claim.handler, "attempt": claim.attempt}
    return {**known, "batch": claim.batch} if claim.batch is not None else known
