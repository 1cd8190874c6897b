"""The verdict if alerts fire, and what helps then."""

from collections.abc import Sequence

from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView
from pitboss.model.snapshot import WorkerFigures, WorkerState
from pitboss.model.verdict import Health, Verdict

# What helps when these built-in alerts fire.
_HELP = {"memory_usage": ("pitboss ps",), "dead_letter_rate": ("pitboss dead list",)}


def of_alerts(findings: Sequence[Finding], managers: Sequence[ManagerView]) -> tuple[Verdict, tuple[str, ...]] | None:
    """The worst alert that fires, and the commands that help: findings tell of it as
    `alert NAME (severity) is firing: …`."""
    found = [one for one in findings if one.check == "alerts" and one.grade is not Grade.OK]
    if not found:
        return None
    worst = next((one for one in found if one.grade is Grade.PROBLEM), found[0])
    name, told = worst.what.split()[1], worst.what.partition(": ")[2]
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="alert",
        sentence=f"{told[:1].upper()}{told[1:].rstrip('.')}.",
        why="; ".join([f"the alert {name} is firing: {worst.why}", *_large(name, told, managers)]),
    )
    commands = ("pitboss alerts list", f"pitboss alerts silence {name} --for 2h")
    return verdict, (*_HELP.get(name, ()), *_restarts(name, told, managers), *commands)


def _restarts(alert: str, told: str, managers: Sequence[ManagerView]) -> list[str]:
    """A pool with a worker that is too large and not replaced."""
    if alert != "memory_usage":
        return []
    return [f"pitboss pools restart {pool}" for pool in sorted({one.pool for one in _told_of(told, managers)})]


def _told_of(told: str, managers: Sequence[ManagerView]) -> list[WorkerFigures]:
    """The workers that an alert names."""
    return [
        one
        for manager in managers
        for one in manager.snapshot.workers
        if f"worker {one.name} " in told and (" on " not in told or f" on {manager.host} " in told)
    ]


def _large(alert: str, told: str, managers: Sequence[ManagerView]) -> list[str]:
    """Why a worker that is too large is still there."""
    now = max((one.renewed_at for one in managers), default=0)
    return [_still_there(one, now) for one in _told_of(told, managers)] if alert == "memory_usage" else []


def _still_there(worker: WorkerFigures, now: Moment) -> str:
    if not worker.tasks:
        return f"{worker.name} runs no task"
    task = min(worker.tasks, key=lambda one: one.since)
    runs = f"runs {task.handler} (task {task.id[-12:]}) for {spoken(max(SECOND, now - task.since))}"
    if worker.state is WorkerState.DRAINING:
        return f"{worker.name} is replaced when its task ends: it {runs}"
    return f"{worker.name} {runs}, and a restart of its pool waits for the end of that"
