"""Cron ticks in every time zone, compared with an oracle: `python -m benchmarks.cron_oracle [--zones TEXT]`.

The oracle walks minute by minute (second by second for six fields) around every change of every zone's clock from 2020
to 2030, for 40 schedules. A zone without a change is compared around one date. One comparison is one zone, one change
and one schedule: the sequence of all ticks, and the next tick after five moments. It ends with 1 if anything differs.
"""

import argparse
import random
import sys
import time
from bisect import bisect_right
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from pitboss.model.cron import checked_zone, next_tick, ticks
from pitboss.model.errors import InvalidInput
from tests.model.cron_oracle import SECOND, SHAPES, around, changes, expected

YEARS = (2020, 2030)
LEAP_DAY = 1_709_164_800  # 2024-02-29
STARTS = 5
SHOWN = 20


class Found(NamedTuple):
    zone: str
    changes: int
    comparisons: int
    ticks: int
    starts: int
    differences: list[str]


def compare(name: str) -> Found:
    """All changes and schedules of one zone."""
    zone, chance = ZoneInfo(name), random.Random(name)
    moments = changes(zone, *YEARS)
    seen = starts = 0
    differences = []
    for change in moments or [LEAP_DAY]:
        for shape in SHAPES:
            there = around(zone, change, shape)
            right = expected(shape, there)
            begin, end = there.start * SECOND, there.end * SECOND
            seen += len(right)
            if tuple(ticks(shape, name, begin, end)) != right:
                differences.append(f"{name} {change} {shape}: other ticks")
            for _ in range(STARTS):
                after = chance.randrange(begin, end)
                at = bisect_right(right, after)
                got = next_tick(shape, name, after)
                starts += 1
                if got is None or (got != right[at] if at < len(right) else got <= end):
                    differences.append(f"{name} {change} {shape}: after {after} comes {got}")
    return Found(name, len(moments), len(moments or [0]) * len(SHAPES), seen, starts, differences)


def zones(wanted: str) -> tuple[list[str], list[str]]:
    """The zones that a schedule may have, and the other names in the database."""
    taken, refused = [], []
    for name in sorted(available_timezones()):
        try:
            taken.append(checked_zone(name))
        except InvalidInput:
            refused.append(name)
    return [name for name in taken if wanted in name], refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zones", default="", help="only zones with this in their name")
    names, refused = zones(parser.parse_args().zones)
    began, found = time.monotonic(), []
    print(f"{len(names)} zones, {len(SHAPES)} schedules. Not taken as zones: {', '.join(refused)}.", flush=True)
    with ProcessPoolExecutor() as pool:
        for done in pool.map(compare, names, chunksize=4):
            found.append(done)
            for line in done.differences[:SHOWN]:
                print(f"DIFFERS {line}", flush=True)
            if len(found) % 25 == 0:
                print(f"{len(found)} of {len(names)} zones, {time.monotonic() - began:.0f} s", flush=True)
    differences = sum(len(done.differences) for done in found)
    print(
        f"{len(found)} zones ({sum(not done.changes for done in found)} without a change), "
        f"{sum(done.changes for done in found):,} changes from {YEARS[0]} to {YEARS[1]}, {len(SHAPES)} schedules: "
        f"{sum(done.comparisons for done in found):,} comparisons of {sum(done.ticks for done in found):,} ticks and "
        f"{sum(done.starts for done in found):,} single moments, {differences:,} differences"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
