"""What is done to pools, members, leases and batches, on several engines at once."""

from typing import Any

from pitboss.model.batch import (
    Batch,
    BatchAct,
    BatchId,
    Cancel,
    Delete,
    Move,
    NewBatch,
    Pause,
    Requeue,
    Resume,
    Start,
)
from pitboss.model.limits import Window
from pitboss.model.resource import (
    KeyValue,
    Leased,
    Limits,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
    Strategy,
    UseEnd,
    Want,
)
from pitboss.model.session import Slot
from tests.conformance.acts import BOUND, FETCH, POOL, SECOND, Acts

MEMBERS = ("m1", "m2", "m3", "m4")
LEASES = ("l1", "l2", "l3")
LANES = ("default", "side")
# One window for all, beside shorter ones: a member then remembers the same uses, whichever act changes its limits.
_ALWAYS = Window(3, 5 * SECOND)
LIMITS = [
    Limits(windows=(_ALWAYS,), concurrency=None, use_within=2 * SECOND),
    Limits(windows=(_ALWAYS,), concurrency=1, use_within=0),
    Limits(windows=(_ALWAYS, Window(1, SECOND)), concurrency=2, use_within=SECOND // 2),
    Limits(windows=(_ALWAYS,), min_delay=SECOND, jitter=SECOND, concurrency=None),
    Limits(windows=(_ALWAYS,), min_delay=SECOND, delay_from="end", concurrency=1, use_within=3 * SECOND),
]
_HEALTH: dict[str, Any] = {
    "max_failures": 2,
    "cooldown": 3 * SECOND,
    "cooldown_cap": 20 * SECOND,
    "blacklist": 5 * SECOND,
    "blacklist_cap": 40 * SECOND,
    "bound_for": 10 * SECOND,
}
RULES = [
    PoolRules(limits=LIMITS[0], **_HEALTH),
    PoolRules(limits=LIMITS[1], strategy=Strategy.ROUND_ROBIN, max_ejected=1.0, **_HEALTH),
    PoolRules(limits=LIMITS[2], strategy=Strategy.LEAST_LOADED, max_ejected=0.3, **_HEALTH),
    PoolRules(limits=LIMITS[3], strategy=Strategy.WEIGHTED, **_HEALTH),
    PoolRules(limits=LIMITS[4], strategy=Strategy.STICKY, away="rebind", **_HEALTH),
    PoolRules(limits=LIMITS[1], strategy=Strategy.STICKY, **_HEALTH),
]
OPERATOR_LIMITS: list[tuple[dict[str, KeyValue], bool]] = [
    ({}, True),
    ({}, True),
    ({"concurrency": 1}, False),
    ({"min_delay": SECOND, "strategy": "weighted"}, False),
    ({"per_second": 1, "concurrency": "none"}, True),
]
WANTS = [
    None,
    None,
    Want(),
    Want(labels=("x",)),
    Want(labels=("x", "y")),
    Want(key="k1"),
    Want(key="k2"),
    Want(labels=("x",), key="k1"),
]
_LIMITED, _BLOCKED, _FAULTY = ResourceOutcome.RATE_LIMITED, ResourceOutcome.BLOCKED, ResourceOutcome.RESOURCE_ERROR
REPORTS = [
    None,
    None,
    Report(outcome=ResourceOutcome.OK),
    Report(outcome=ResourceOutcome.OK, destination="d1", took=SECOND // 3),
    Report(outcome=_LIMITED),
    Report(outcome=_LIMITED, retry_after=2 * SECOND),
    Report(outcome=_BLOCKED, destination="d1"),
    Report(outcome=_FAULTY, destination="d1", error="reset"),
    Report(outcome=_FAULTY, destination="d2"),
    Report(outcome=_FAULTY),
    Report(outcome=ResourceOutcome.TASK_ERROR),
]
NEW_MEMBERS: list[dict[str, Any]] = [
    {},
    {"labels": ("x",)},
    {"labels": ("x", "y"), "weight": 50},
    {"limits": LIMITS[1], "fields": '{"n":1}'},
    {"secrets": {"s": "sealed"}, "valid_until": 5, "weight": 300},
]
CHANGES = [
    ResourceChange(enabled=False, reason="out"),
    ResourceChange(enabled=True),
    ResourceChange(enabled=True),
    ResourceChange(reset=True),
    ResourceChange(labels=("x",)),
    ResourceChange(labels=(), weight=10),
    ResourceChange(limits=LIMITS[2]),
    ResourceChange(limits=None, fields="[]"),
    ResourceChange(secrets={"s": "sealed again"}),
    None,
]
BATCH_ACTS: list[BatchAct] = [
    Pause(),
    Pause("down"),
    Resume(),
    Resume("top"),
    Resume("bottom"),
    Start(),
    Cancel("enough"),
    Cancel(),
    Move("top"),
    Move("up"),
    Move("down"),
    Move("bottom"),
    Move("before", "b1"),
    Requeue(),
    Requeue(error="net", keep_attempts=True),
    Requeue(cancelled=True),
    Delete(),
    Delete(force=True),
]


class ScarceActs(Acts):
    """The acts of `Acts`, with a pool that the tasks of one queue need, and with batches."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.batches: list[BatchId] = []
        # By lease: the moments under which its first and its newest use are remembered, and how long uses are open.
        self.granted: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.open_for: dict[str, int] = {}

    def begin(self) -> None:
        super().begin()
        self.declare(0)
        self.add([(name, {"labels": ("x",)} if name == "m2" else {}) for name in MEMBERS[:3]])

    def declare(self, which: int) -> None:
        rules = RULES[which % len(RULES)]
        self.arena.act(lambda store: store.declare_pool(POOL, rules, replace=which % 5 != 4))

    def limit(self, which: int) -> None:
        values, reset = OPERATOR_LIMITS[which % len(OPERATOR_LIMITS)]
        self.arena.act(lambda store: store.limit_pool(POOL, values, by="ann", reset=reset))

    def add(self, chosen: list[tuple[str, dict[str, Any]]]) -> None:
        members = [NewResource(**{"name": name} | options) for name, options in chosen]
        self.arena.act(lambda store: store.add_resources(POOL, members))

    def change(self, names: list[str] | None, change: ResourceChange | None) -> None:
        self.arena.act(lambda store: store.change_resources(POOL, names, change))

    def need(self, chosen: list[dict[str, Any]], want: Want | None) -> None:
        """Put tasks that need a member."""
        self.put([one | {"handler": FETCH, "queue": BOUND, "want": want} for one in chosen], None, None)

    def outdo(self, who: int, report: Report, times: int) -> None:
        """Tasks fail with some members, and then succeed with others: these are judged by comparison."""
        request = ((Slot(free=1, queues=(BOUND,)),), None)
        for _ in range(times):
            self.need([{}], None)
            self.work(who, request, ("rotated", None, None, None, report))
            self.work(who, request, ("completed", None, None, None, Report(outcome=ResourceOutcome.OK)))

    def lease(self, act: str, lease: str, want: Want | None, report: Report | None) -> None:
        match act:
            case "acquire":
                got = self.arena.act(lambda store: store.acquire(POOL, want or Want(), 4 * SECOND, lease=lease))
                if isinstance(got, Leased):
                    self.granted[lease] = self.newest[lease] = got.use_at
                    self.open_for[lease] = got.open_for
            case "release":
                end = None if lease not in self.newest or report is None else UseEnd(self.newest[lease])
                self.arena.act(lambda store: store.release(lease, report, end))
            case "end":
                over = UseEnd(self.newest.get(lease, 0), self.granted.get(lease))
                self.arena.act(lambda store: store.end_use(lease, None, over))
            case "extend":
                self.arena.act(lambda store: store.extend(lease, 8 * SECOND))
            case "use":
                ends = UseEnd(self.newest[lease]) if lease in self.newest else None
                used = self.arena.act(lambda store: store.use(lease, ends=ends))
                if isinstance(used, int):
                    self.newest[lease] = used + self.open_for.get(lease, 0)
            case "move":
                instead = self.granted.get(lease)
                self.arena.act(lambda store: store.use(lease, instead=instead))

    def use_again(self, which: int) -> None:
        """By a claim, which may be over."""
        if self.claims:
            claim = self.claims[-1 - which % min(4, len(self.claims))]
            instead = claim.leased.use_at if claim.leased is not None and which % 2 else None
            self.arena.act(lambda store: store.use(claim.token, claim.id, instead=instead))

    def create_batch(self, chosen: list[dict[str, Any]], lane: str, again: int | None, notice: bool) -> None:
        name = f"b{len(self.batches) + 1}"
        if again is not None and self.batches:
            name = self.batches[again % len(self.batches)]
        on_complete = self._new({"handler": "a", "queue": "q1", "params": '{"n":1}'}, None) if notice else None
        batch = NewBatch(id=name, lane=lane, paused=bool(again and again % 5 == 0), on_complete=on_complete)
        items = [self._new({key: one[key] for key in one if key != "order_key"}, None) for one in chosen]
        created = self.arena.act(lambda store: store.create_batch(batch, items))
        if isinstance(created, Batch) and name not in self.batches:
            self.batches.append(name)
            self.known += items

    def act_on_batch(self, which: int, act: BatchAct, limit: int) -> None:
        if self.batches:
            batch = self.batches[which % len(self.batches)]
            self.arena.act(lambda store: store.act_on_batch(batch, act, limit=limit), revived=True)

    def change_lane(self, lane: str, max_running: int) -> None:
        self.arena.act(lambda store: store.change_lane(lane, max_running))
