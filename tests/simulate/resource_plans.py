"""Random plans of pools. Times are few and round, so that windows, gaps and ends often fall on the same moment."""

from random import Random
from typing import NamedTuple

from pitboss.model.duration import SECOND, Span
from pitboss.model.limits import Window
from pitboss.model.resource import Limits, NewResource, PoolRules, ResourceOutcome, Strategy, Want

TROUBLES = (
    "new_rules",
    "own_limits",
    "disable",
    "reset",
    "new_label",
    "new_member",
    "clock_forward",
    "clock_back",
)
LABELS = ("de", "fr")
_MINUTE = 60 * SECOND


class Plan(NamedTuple):
    rules: PoolRules
    members: list[NewResource]
    managers: list[int]
    tasks: list[tuple[Span, Want]]
    leases: list[tuple[Span, Want]]
    troubles: list[tuple[Span, str]]
    services: list[Span]
    bad: dict[str, float]
    told: float
    more_uses: float
    late: float

    def service(self, luck: Random) -> Span:
        return luck.choice(self.services)

    def fate(self, luck: Random, name: str) -> ResourceOutcome | None:
        """The outcome of a use; None: it is given back without a report."""
        if luck.random() >= self.bad.get(name, self.bad[""]):
            return ResourceOutcome.OK
        return luck.choice(
            [
                ResourceOutcome.RATE_LIMITED,
                ResourceOutcome.BLOCKED,
                ResourceOutcome.RESOURCE_ERROR,
                ResourceOutcome.TASK_ERROR,
                None,
            ]
        )

    def retry_after(self, luck: Random) -> Span | None:
        return luck.choice([1, 10, 90]) * SECOND if luck.random() < self.told else None


def draw(luck: Random, lasting: Random | None) -> Plan:
    """A plan. `lasting` decides for how long uses are open; None: not at all."""
    members = [_member(luck, lasting, number) for number in range(luck.choice([1, 2, 3, 5, 8]))]
    stretch = luck.choice([0, 5, 30, 120]) * SECOND
    count = luck.randint(6, 28)
    troubled = luck.random() < 0.5
    return Plan(
        rules=_rules(luck, lasting),
        members=members,
        managers=luck.choice([[1], [3], [40], [1, 2], [8, 8]]),
        tasks=sorted(((_moment(luck, stretch), _want(luck)) for _ in range(count)), key=lambda one: one[0]),
        leases=[(_moment(luck, 30 * SECOND), _want(luck)) for _ in range(luck.choice([0, 0, 0, 4]))],
        troubles=[(_moment(luck, 60 * SECOND), luck.choice(TROUBLES)) for _ in range(luck.randint(1, 5) * troubled)],
        services=luck.choice([[0], [SECOND // 10], [SECOND], [0, SECOND, 5 * SECOND], [1, 999_999, 2_000_003]]),
        bad={"": luck.choice([0.0, 0.0, 0.1, 0.4]), members[0].name: luck.choice([0.0, 0.5, 0.9])},
        told=luck.choice([0.0, 0.5, 1.0]),
        more_uses=luck.choice([0.0, 0.0, 0.3]),
        late=luck.choice([0.0, 0.0, 0.3, 1.0]),
    )


def draw_limits(luck: Random, lasting: Random | None) -> Limits:
    windows = tuple(
        Window(luck.choice([1, 2, 3, 5, 8]), luck.choice([1, 5, 10, 60]) * SECOND)
        for _ in range(luck.choice([0, 1, 1, 2, 3]))
    )
    return Limits(
        windows=windows,
        min_delay=luck.choice([0, 0, SECOND // 2, SECOND, 5 * SECOND]),
        jitter=luck.choice([0, 0, 0, SECOND]),
        delay_from=luck.choice(["start", "end"]),
        concurrency=luck.choice([1, 1, 2, 4, None]),
        guard=luck.choice([0, 0, 50_000, SECOND]),
        use_within=lasting.choice([0, 50_000, SECOND, 10 * SECOND, 10 * SECOND]) if lasting is not None else 0,
    )


def _rules(luck: Random, lasting: Random | None) -> PoolRules:
    return PoolRules(
        limits=draw_limits(luck, lasting),
        strategy=luck.choice(list(Strategy)),
        away=luck.choice(["wait", "rebind"]),
        bound_for=luck.choice([7_000_003, 3_600_000_017]),
        max_failures=luck.randint(1, 3),
        cooldown=luck.choice([2 * SECOND, _MINUTE]),
        cooldown_cap=5 * _MINUTE,
        blacklist=luck.choice([5 * SECOND, 2 * _MINUTE]),
        blacklist_cap=10 * _MINUTE,
        max_ejected=luck.choice([0.0, 0.3, 0.5, 1.0]),
    )


def _member(luck: Random, lasting: Random | None, number: int) -> NewResource:
    return NewResource(
        name=f"m{number}",
        # The first member has every label, so that every wish can be met.
        labels=LABELS if number == 0 else tuple(label for label in LABELS if luck.random() < 0.5),
        weight=luck.choice([50, 100, 300]),
        limits=draw_limits(luck, lasting) if luck.random() < 0.2 else None,
    )


def _want(luck: Random) -> Want:
    labels = (luck.choice(LABELS),) if luck.random() < 0.2 else ()
    return Want(labels=labels, key=f"k{luck.randint(0, 2)}" if luck.random() < 0.2 else None)


def _moment(luck: Random, stretch: Span) -> Span:
    """Half of them at full seconds, when other things happen, too."""
    at = luck.randint(0, stretch) if stretch else 0
    return at if luck.random() < 0.5 else at // SECOND * SECOND
