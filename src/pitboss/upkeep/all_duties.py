"""The duties of a manager, for what its engine has."""

from collections.abc import Callable
from typing import Protocol

from pitboss.engines.capabilities import capabilities
from pitboss.engines.happening_protocol import Happenings
from pitboss.engines.protocol import Clock, Store
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.retention import Retention
from pitboss.upkeep.alerts import ALERT_SECONDS, Alerter
from pitboss.upkeep.duties import Duty
from pitboss.upkeep.fire import LOOK_SECONDS, Firer
from pitboss.upkeep.notice import NOTICE_SECONDS, Note, Noticer
from pitboss.upkeep.operations import operation_duties
from pitboss.upkeep.prune import PRUNE_SECONDS, prune
from pitboss.upkeep.prune_batches import prune_batches
from pitboss.upkeep.prune_logs import prune_events, prune_happenings
from pitboss.upkeep.rebalance import REBALANCE_SECONDS, Rebalancer
from pitboss.upkeep.roll_up import figure_duties
from pitboss.upkeep.store_size import SIZE_SECONDS, watch_size
from pitboss.upkeep.successes import note_successes
from pitboss.upkeep.sweep import RECLAIM_SECONDS, reclaim


class UpkeepPlan(Protocol):
    """How long things are kept, and how large the store may become. None: no limit."""

    @property
    def retention(self) -> Retention: ...

    @property
    def max_store_size(self) -> int | None: ...

    @property
    def min_free_disk(self) -> int | None: ...

    @property
    def alerts(self) -> AlertsSpec | None: ...


def all_duties(
    engine: Store,
    plan: Callable[[], UpkeepPlan],
    *,
    clock: Clock,
    warn: Callable[[str], None],
    say: Callable[[str], None] = lambda _: None,
    note: Note | None = None,
) -> list[Duty]:
    """Every manager reclaims; the rest is done by the leader alone. `plan` returns the present one, `note` gets what
    belongs in the log of happenings."""

    async def watch(term: int) -> None:
        if usage is not None:
            limits = plan()
            await watch_size(usage, max_size=limits.max_store_size, min_free=limits.min_free_disk, term=term, warn=warn)

    async def tidy(term: int) -> None:
        if schedules is not None and acts is not None:
            await note_successes(engine, schedules, acts, term)
        await prune(engine, plan().retention, clock, term=term)

    has = capabilities(engine)
    batches, acts, schedules, usage = has.batches, has.leader_acts, has.schedules, has.usage
    duties = [
        Duty("reclaim", RECLAIM_SECONDS, lambda _: reclaim(engine), led=False),
        Duty("prune", PRUNE_SECONDS, tidy),
    ]
    if batches is not None:
        duties.append(Duty("prune batches", PRUNE_SECONDS, lambda _: prune_batches(batches, plan().retention, clock)))
    if acts is not None:
        duties += [
            Duty("fire schedules", LOOK_SECONDS, Firer(engine, acts, clock, warn=warn).fire),
            Duty("prune events", PRUNE_SECONDS, lambda term: prune_events(acts, plan().retention, clock, term=term)),
        ]
    duties += _log_duties(engine, has.happenings, plan, clock, note)
    if usage is not None:
        duties.append(Duty("watch the size", SIZE_SECONDS, watch))
    duties += operation_duties(has.operations, clock, note)
    duties += figure_duties(has.figures, lambda: plan().retention, clock)
    if has.partitions is not None:
        rebalancer = Rebalancer(engine, has.partitions, clock, say=say)
        duties.append(Duty("rebalance", REBALANCE_SECONDS, rebalancer.rebalance))
    if has.alerts is not None:
        alerter = Alerter(engine, has.alerts, lambda: plan().alerts, clock, log=warn, note=note)
        duties.append(Duty("look at alerts", ALERT_SECONDS, alerter.look))
    return duties


def _log_duties(
    engine: Store, log: Happenings | None, plan: Callable[[], UpkeepPlan], clock: Clock, note: Note | None
) -> list[Duty]:
    if log is None:
        return []
    duties = [Duty("prune logs", PRUNE_SECONDS, lambda t: prune_happenings(log, plan().retention, clock, term=t))]
    if note is not None:
        duties.append(Duty("notice managers", NOTICE_SECONDS, Noticer(engine, log, clock, note).notice))
    return duties
