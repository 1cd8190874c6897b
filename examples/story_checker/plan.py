"""Forecast in virtual time how long a number of profiles will take: `python -m examples.story_checker.plan`

The bound is the soonest end that the proxies' limits allow. Next to it is the end that the dispatcher reaches.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial

from pitboss import wiring
from pitboss.engines.protocol import Clock, FullStore
from pitboss.model.duration import SECOND, Span, span
from pitboss.model.limits import rate
from pitboss.model.resource import Limits, NewResource, PoolRules
from pitboss.simulate.forecast import Demand, Forecast, forecast

ROWS = 12
WIDTH = 40


def main(arguments: Sequence[str] | None = None) -> Forecast:
    given = _parser().parse_args(arguments)
    began = time.perf_counter()
    found = forecast(_in_memory, _demand(given))
    took = time.perf_counter() - began
    print(f"{given.profiles:,} profiles over {given.proxies} proxies, {_limits(given)}")
    print(f"{given.max_threads} threads, {given.check / SECOND:g} s per check\n")
    print(f"bound       {_clock(found.bound):>8}   the soonest that the limits allow")
    print(f"simulated   {_clock(found.took):>8}   by the dispatcher, in virtual time")
    print(f"efficiency  {found.efficiency:>8.2%}\n")
    print("\n".join(_timeline(found)))
    print(f"\nsimulated in {took:.1f} s")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.story_checker.plan", description="How long will it take?")
    time_of = partial(span, what="time")
    parser.add_argument("--profiles", type=int, default=10_000)
    parser.add_argument("--proxies", type=int, default=50)
    parser.add_argument("--per-hour", type=int, default=50, help="checks per proxy in any hour")
    parser.add_argument("--min-delay", type=time_of, default="20s", help="between two checks of one proxy")
    parser.add_argument("--max-threads", type=int, default=10, help="checks at a time")
    parser.add_argument("--check", type=time_of, default="1500ms", help="how long a check takes")
    return parser


def _demand(given: argparse.Namespace) -> Demand:
    limits = Limits(windows=rate(f"{given.per_hour}/h"), min_delay=given.min_delay)
    return Demand(
        tasks=given.profiles,
        slots=given.max_threads,
        service=given.check,
        members=tuple(NewResource(name=f"proxy-{number}") for number in range(given.proxies)),
        rules=PoolRules(limits=limits),
    )


def _in_memory(clock: Clock) -> FullStore:
    engine = wiring.make_engine("memory://", clock=clock)
    assert isinstance(engine, FullStore)
    return engine


def _limits(given: argparse.Namespace) -> str:
    pause = f", {given.min_delay / SECOND:g} s between two of one" if given.min_delay else ""
    return f"{given.per_hour} per hour each{pause}"


def _timeline(found: Forecast) -> list[str]:
    """The number of checks that started in each part of the time."""
    step: Span = max(SECOND, found.took // ROWS + 1)
    counts = [0] * (found.took // step + 1)
    for start in found.starts:
        counts[start // step] += 1
    most = max(counts)
    return [
        f"{_clock(row * step):>8}  {'█' * round(WIDTH * count / most):<{WIDTH}} {count:,}".rstrip()
        for row, count in enumerate(counts)
    ]


def _clock(moment: Span) -> str:
    minutes, seconds = divmod(moment // SECOND, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


if __name__ == "__main__":
    main()
