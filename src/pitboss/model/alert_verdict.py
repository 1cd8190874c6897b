"""The verdict if alerts fire, and what helps then."""

from collections.abc import Sequence

from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView
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
        why=f"the alert {name} is firing: {worst.why}",
    )
    commands = ("pitboss alerts list", f"pitboss alerts silence {name} --for 2h")
    return verdict, (*_HELP.get(name, ()), *_restarts(name, told, managers), *commands)


def _restarts(alert: str, told: str, managers: Sequence[ManagerView]) -> list[str]:
    """A pool with a worker that is too large and not replaced."""
    if alert != "memory_usage":
        return []
    workers = (one for manager in managers for one in manager.snapshot.workers)
    pools = {one.pool for one in workers if f"worker {one.name} " in told}
    return [f"pitboss pools restart {pool}" for pool in sorted(pools)]
