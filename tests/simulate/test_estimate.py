"""The estimate after the first tasks, beside the time that the real dispatcher and engine then take in virtual time."""

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND, Span
from pitboss.model.estimate import Ended, Work, estimate, timing
from pitboss.model.limits import Window
from pitboss.model.resource import HOUR, MINUTE, Limits, NewResource, PoolRules
from pitboss.model.supply import Supply
from pitboss.simulate.forecast import Demand, forecast

TASKS, SEEN = 1000, 20


@pytest.mark.parametrize(
    ("bound", "slots", "service", "members", "limits"),
    [
        ("workers", 10, 2 * SECOND, 50, Limits()),
        ("resources", 10, 2 * SECOND, 5, Limits(windows=(Window(50, HOUR),))),
        ("resources", 20, SECOND // 2, 8, Limits(windows=(Window(30, MINUTE),))),
        ("resources", 10, SECOND, 5, Limits(min_delay=2 * SECOND)),
        ("resources", 10, SECOND, 5, Limits(min_delay=2 * SECOND, jitter=SECOND)),
        ("resources", 10, SECOND, 5, Limits(min_delay=2 * SECOND, delay_from="end")),
        ("resources", 20, SECOND, 5, Limits(concurrency=2)),
    ],
    ids=["workers", "per hour", "per minute", "gap", "gap with jitter", "gap from the end", "concurrency"],
)
def test_after_two_percent_of_the_work_the_estimate_is_near(
    bound: str, slots: int, service: Span, members: int, limits: Limits
) -> None:
    names = [f"m{number}" for number in range(members)]
    real = forecast(
        lambda clock: MemoryEngine(clock=clock),
        Demand(
            tasks=TASKS,
            slots=slots,
            service=service,
            members=tuple(NewResource(name=name) for name in names),
            rules=PoolRules(limits=limits),
            spread=0.3,
        ),
    )
    # Members take turns, so the n-th start is that of the n-th member, round by round.
    ended = [
        Ended(number % slots, service, at + service, member=names[number % members])
        for number, at in enumerate(real.starts[:SEEN])
    ]
    supply = Supply(((limits, members),))
    left = TASKS - SEEN
    work = Work(left=left, seats=slots, timing=timing(ended), pool="proxies", usable=supply, members=supply)
    found = estimate(work)
    assert found.bound is not None
    assert found.time is not None
    assert found.bound.kind == bound
    took = real.took - real.starts[SEEN]
    assert found.time.middle == pytest.approx(took, rel=0.15)
