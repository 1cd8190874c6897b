"""A forecast uses the real dispatcher and engine, and is within one percent of the bound."""

import pytest

from examples.story_checker import plan
from pitboss import wiring
from pitboss.engines.protocol import Clock, FullStore
from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.resource import Limits, NewResource, PoolRules
from pitboss.simulate.forecast import Demand, forecast


def in_memory(clock: Clock) -> FullStore:
    engine = wiring.make_engine("memory://", clock=clock)
    assert isinstance(engine, FullStore)
    return engine


def demand(limits: Limits, *, tasks: int, slots: int, members: int = 5, spread: float = 0.0) -> Demand:
    names = tuple(NewResource(name=f"m{number}") for number in range(members))
    rules = PoolRules(limits=limits)
    return Demand(tasks=tasks, slots=slots, service=SECOND, members=names, rules=rules, spread=spread)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(windows=rate("10/min")),
        Limits(min_delay=20 * SECOND),
        Limits(min_delay=20 * SECOND, delay_from="end"),
        Limits(concurrency=2),
    ],
    ids=["windows", "gaps", "rests", "concurrency"],
)
def test_it_comes_close_to_the_bound(limits: Limits) -> None:
    found = forecast(in_memory, demand(limits, tasks=400, slots=20))
    assert len(found.starts) == 400
    assert 0.99 <= found.efficiency <= 1.0


def test_too_few_slots_are_what_limits_it() -> None:
    found = forecast(in_memory, demand(Limits(concurrency=None), tasks=300, slots=3))
    assert 99 * SECOND <= found.took <= 101 * SECOND


def test_the_same_seed_gives_the_same_course() -> None:
    wanted = demand(Limits(min_delay=2 * SECOND), tasks=100, slots=4, spread=0.5)
    assert forecast(in_memory, wanted) == forecast(in_memory, wanted)


def test_the_story_checker_plans_ten_thousand_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan.main(["--proxies", "50", "--per-hour", "50", "--profiles", "10000"])
    assert found.efficiency >= 0.99
    assert "efficiency" in capsys.readouterr().out
