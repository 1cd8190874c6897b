"""The verdict on a store: of all causes that apply, the one that explains the others."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pitboss.model.alert_verdict import of_alerts
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.filter import Count
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import live_managers
from pitboss.model.queue_verdicts import BY_OPERATORS, cannot_start, growing, late_tasks, paused_queue
from pitboss.model.schedule_findings import are_overdue
from pitboss.model.source_findings import MALFORMED, SOURCES, stuck_sources
from pitboss.model.states import State
from pitboss.model.store_reading import LATELY, StoreReading
from pitboss.model.text import counted, listed
from pitboss.model.verdict import Health, Verdict, actions
from pitboss.model.verdict_case import Case, Found, counted_tasks, tasks_wait
from pitboss.model.worker_verdicts import crash_loop, no_worker

_MANY_FAILURES = 10
_NAMES_IN_VERDICT, _ALSO_SHOWN = 3, 5
# What the store takes for a small read, if it is well.
SLOW: Span = SECOND
# Findings of these checks are told beside the verdict.
_TOLD = ("managers", "workers", "paused", "capacity", "keys", "releases", "http", "waiting", "schedules")
# What follows from another cause of the same queue, and is not told beside it.
_SYMPTOMS = ("late", "grows", "rate", "stalled", "workers", "memory")
_STORE_ALERTS = ("alert store_slow ", "alert disk ")
_NEXT = {
    "no-manager": ("pitboss up",),
    "no-worker": ("pitboss doctor", "pitboss logs manager"),
    "held": ("pitboss tasks list state:held",),
    "failing": ("pitboss dead list",),
    "paused": ("pitboss queues resume {queue}",),
    "late": ("pitboss tasks list state:pending",),
    "failed": ("pitboss dead list",),
    "healthy": ("pitboss tasks list",),
    "store-slow": ("pitboss doctor",),
}


def judge(reading: StoreReading, findings: Sequence[Finding], now: Moment) -> Verdict:
    """The first cause of `_LOOKS` that applies explains the others; they are told beside it."""
    case = Case(reading, live_managers(reading.sessions, now), findings, now)
    found = [one for look in _LOOKS if (one := look(case)) is not None]
    worst = found[0] if found else Found(_healthy(case))
    verdict = worst.verdict
    commands = list(worst.commands) or [verdict.next] * bool(verdict.next)
    commands += [one.format(queue=verdict.queue) for one in _NEXT.get(verdict.cause, ()) if not worst.commands]
    return msgspec.structs.replace(
        _with_others(verdict, reading),
        next=verdict.next or commands[0],
        actions=actions(commands),
        also=_also(case, worst, found[1:]),
    )


def _also(case: Case, worst: Found, others: Sequence[Found]) -> tuple[str, ...]:
    """Other causes, and findings, as far as they do not follow from the worst one."""
    said = [
        one.verdict.sentence
        for one in others
        if not (one.verdict.cause in _SYMPTOMS and one.queues <= worst.queues)
        and (worst.verdict.cause, one.verdict.cause) != ("failing", "failed")
        and one.verdict.cause not in ("paused", "problem", MALFORMED)
    ]
    said += [one.what for one in case.findings if one.check in _TOLD and one.grade is not Grade.OK]
    lines = dict.fromkeys(f"{one[:1].upper()}{one[1:].rstrip('.')}." for one in said if not _same(one, worst, case))
    return tuple(lines)[:_ALSO_SHOWN]


def _same(line: str, worst: Found, case: Case) -> bool:
    """Whether the verdict says that already."""
    verdict = worst.verdict
    whole = f"{verdict.sentence} {verdict.why}".lower()
    if line.lower().rstrip(".") in whole:
        return True
    if verdict.cause == "no-manager" and line.startswith("no manager"):
        return True
    if verdict.cause in ("no-worker", "crash-loop"):
        return line.startswith(("pool ", "worker ", "Worker pool"))
    if verdict.cause == "overdue":
        return " overdue by " in line
    named = f'queue "{verdict.queue}"'
    return verdict.queue is not None and verdict.cause == "paused" and line.startswith(named)


def _with_others(verdict: Verdict, reading: StoreReading) -> Verdict:
    """The sentence also says how many other causes keep tasks from starting."""
    if verdict.cause in ("healthy", "no-manager", SOURCES, "problem", MALFORMED, "store-slow"):
        return verdict
    others = sum(
        one.stuck and one.cause not in BY_OPERATORS and (one.queue, one.cause) != (verdict.queue, verdict.cause)
        for one in reading.troubles
    ) + (bool(reading.held) and verdict.cause != "held")
    if not others:
        return verdict
    said = f"{verdict.sentence.removesuffix('.')}; and {others} more: pitboss doctor."
    return msgspec.structs.replace(verdict, sentence=said)


def _healthy(case: Case) -> Verdict:
    reading = case.reading
    running, paused = reading.total(State.RUNNING), reading.paused_batches
    said = f"Healthy: {counted(len(case.managers), 'manager')}, {running:,} running, {reading.waiting:,} waiting"
    if paused:
        left = sum(one.left for one in paused)
        said += f", {left:,} of them in {counted(len(paused), 'paused batch', 'paused batches')}"
    return Verdict(health=Health.HEALTHY, cause="healthy", sentence=f"{said}.")


def _store(case: Case) -> Found | None:
    """The store is slow, or refuses what is new: everything else follows from it."""
    alert = next((one for one in case.findings if one.check == "alerts" and one.what.startswith(_STORE_ALERTS)), None)
    took = case.reading.answered
    if took <= SLOW and alert is None:
        return None
    said = f"The store is slow: it took {spoken(took)} for a small read." if took > SLOW else ""
    told = "" if alert is None else alert.what.partition(": ")[2]
    sentence = said or f"{told[:1].upper()}{told[1:]}."
    every = frozenset(queue.name for queue in case.reading.queues)
    measured = f"the {case.reading.store} store answers in {spoken(took)}, where less than {spoken(SLOW)} is usual"
    why = "; ".join([*([measured] if took > SLOW else []), *([told] if told and said else [])])
    why = f"{why or told}; every claim and every settlement waits for it"
    return Found(Verdict(health=Health.UNHEALTHY, cause="store-slow", sentence=sentence, why=why), every)


def _stuck_sources(case: Case) -> Found | None:
    said, fix = stuck_sources(case.reading.sessions, case.managers, case.now)
    if not said:
        return None
    return Found(
        Verdict(health=Health.UNHEALTHY, cause=SOURCES, sentence=said, next=fix), commands=("pitboss sources",)
    )


def _no_manager(case: Case) -> Found | None:
    if case.managers:
        return None
    waiting = case.reading.waiting
    rest = f"; {tasks_wait(waiting)}." if waiting else ", and nothing waits."
    ends = [one.expires_at for one in case.reading.sessions if one.info.kind == "manager"]
    since = max((one for one in ends if one <= case.now), default=None)
    verdict = Verdict(health=Health.UNHEALTHY, cause="no-manager", sentence=f"No manager is running{rest}", since=since)
    return Found(verdict, frozenset(queue.name for queue in case.reading.queues))


def _held_tasks(case: Case) -> Found | None:
    if not case.reading.held:
        return None
    names = listed(most_first(case.reading.held), _NAMES_IN_VERDICT)
    said = f"{held_tasks(case.reading)} held because no worker knows the handler: {names}."
    return Found(Verdict(health=Health.UNHEALTHY, cause="held", sentence=said))


def _many_failures(case: Case) -> Found | None:
    within, number, failed = case.reading.ended
    if failed < _MANY_FAILURES or failed * 2 < number:
        return None
    queue = case.reading.failing
    most = f', most of them of queue "{queue}"' if queue else ""
    said = f"{failed:,} of {number:,} tasks of the last {spoken(within)} failed{most}."
    verdict = Verdict(
        health=Health.UNHEALTHY, cause="failing", sentence=said, queue=queue or None, why=case.reading.failure
    )
    return Found(verdict, commands=("pitboss dead list", *([f"pitboss queues pause {queue}"] if queue else [])))


def _overdue(case: Case) -> Found | None:
    found = case.reading.schedules
    if not case.managers or found is None or not found.overdue:
        return None
    said, names, lead = are_overdue(found), found.overdue, case.reading.lead
    # Their names are in the sentence if there is one.
    listing = f": {listed(names, _NAMES_IN_VERDICT)}" if len(names) > 1 else ""
    they = "it" if len(names) == 1 else "them"
    why = f"no manager leads, and only the leading one fires schedules{listing}"
    if lead is not None:
        why = f"manager {lead.session} on {lead.host} leads, but has not fired {they}{listing}"
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="overdue",
        sentence=f"{said[:1].upper()}{said[1:]}, although a manager runs.",
        next="pitboss logs manager",
        why=why,
        since=case.now - found.late_by,
    )
    run = f"pitboss schedules run {names[0]}"
    return Found(verdict, commands=("pitboss logs manager", run, "pitboss schedules list"))


def _alert(case: Case) -> Found | None:
    found = None if case.of_sources else of_alerts(case.findings, case.managers)
    return None if found is None else Found(found[0], commands=found[1])


def _some_failures(case: Case) -> Found | None:
    if not case.reading.failed.number or case.of_sources:
        return None
    said = f"{counted_tasks(case.reading.failed)} of the last {spoken(LATELY)} failed; the rest goes on."
    return Found(Verdict(health=Health.ATTENTION, cause="failed", sentence=said, why=case.reading.failure))


def _other_problem(case: Case) -> Found | None:
    shown = case.wrong or next((finding for finding in case.findings if finding.check == MALFORMED), None)
    if shown is None:
        return None
    said, cause = f"{shown.what[:1].upper()}{shown.what[1:]}.", "problem" if case.wrong else MALFORMED
    return Found(Verdict(health=Health.ATTENTION, cause=cause, sentence=said, next=shown.fix, why=shown.why))


# A cause comes before those that follow from it.
_LOOKS: Sequence[Callable[[Case], Found | None]] = (
    _store,
    no_worker,
    _stuck_sources,
    _no_manager,
    crash_loop,
    _held_tasks,
    _many_failures,
    cannot_start,
    growing,
    _overdue,
    paused_queue,
    late_tasks,
    _alert,
    _some_failures,
    _other_problem,
)


def held_tasks(reading: StoreReading) -> str:
    return counted_tasks(Count(sum(reading.held.values()), reading.more_held))


def most_first(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda name: -counts[name])
