"""Which worker scrapes which states. `python -m scrape_yp.state_assignments` checks the table."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pitboss.model.assignment import KeyLoad, divided, problems, skew
from pitboss.model.partition import Partitioning

STATE_ASSIGNMENTS: dict[int, tuple[str, ...]] = {
    0: ("CA", "MT", "RI", "MS", "ND"),
    1: ("TX", "WY", "VT", "WV", "SD"),
    2: ("FL", "AK", "NH", "NM", "DE"),
    3: ("NY", "ID", "ME", "NV", "HI"),
    4: ("PA", "UT", "MA", "NE", "NJ", "DC"),
    5: ("IL", "OR", "CT", "KS", "AR"),
    6: ("OH", "OK", "IA", "LA", "WI"),
    7: ("GA", "AZ", "KY", "SC", "MN"),
    8: ("NC", "WA", "AL", "CO", "IN"),
    9: ("MI", "TN", "MD", "MO", "VA"),
}
# The 50 states and DC, written out: taken from the table, no state could be missing in it.
# fmt: off
STATES: tuple[str, ...] = (
    "AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DE", "FL", "GA", "HI", "ID", "IL", "IN", "IA", "KS", "KY",
    "LA", "ME", "MD", "MA", "MI", "MN", "MS", "MO", "MT", "NE", "NV", "NH", "NJ", "NM", "NY", "NC", "ND",
    "OH", "OK", "OR", "PA", "RI", "SC", "SD", "TN", "TX", "UT", "VT", "VA", "WA", "WV", "WI", "WY", "DC",
)
# fmt: on
Table = Mapping[int, Sequence[str]]


def get_states_for_worker(worker_id: int) -> list[str]:
    """The states of a worker, 0 to 9."""
    if worker_id not in STATE_ASSIGNMENTS:
        raise ValueError(f"Invalid worker_id: {worker_id}. Must be 0-{max(STATE_ASSIGNMENTS)}.")
    return list(STATE_ASSIGNMENTS[worker_id])


def get_worker_for_state(state: str) -> int:
    """The worker that scrapes a state; capitals do not matter."""
    for worker, states in STATE_ASSIGNMENTS.items():
        if state.upper() in states:
            return worker
    raise ValueError(f"Invalid state: {state}. Must be one of the 50 states or DC.")


def get_all_assignments() -> dict[int, list[str]]:
    return {worker: list(states) for worker, states in STATE_ASSIGNMENTS.items()}


def get_proxy_assignments(worker_id: int, proxies_per_worker: int = 5) -> list[int]:
    """The places of a worker's proxies in the proxy file, from 0 on."""
    first = worker_id * proxies_per_worker
    return list(range(first, first + proxies_per_worker))


def validate_assignments(table: Table = STATE_ASSIGNMENTS) -> bool:
    """True if each state has one worker; a ValueError says everything that is wrong. Pitboss checks the table by the
    same rules when the queue is declared, where states are keys and workers are slots."""
    spec = Partitioning(by="{state_id}", mode="static", table={n: tuple(s) for n, s in table.items()}, keys=STATES)
    found = [str(one).replace("slot", "worker").replace("key", "state") for one in problems(spec)]
    if found:
        raise ValueError("; ".join(found))
    return True


class Balance(NamedTuple):
    """The largest worker's share of the targets beside the mean: 1 is even."""

    by_table: float
    balanced: float


def balance(targets: Mapping[str, int], table: Table = STATE_ASSIGNMENTS) -> Balance:
    """How even the table is for these targets by state, and how even `mode="balanced"` would be."""
    loads = [KeyLoad(state, None, count) for state, count in targets.items()]
    shares = Counter({str(worker): 0 for worker in table})
    for state, slot in divided(loads, list(shares)).items():
        shares[slot] += targets[state]
    by_table = [sum(targets.get(state, 0) for state in states) for states in table.values()]
    return Balance(skew(by_table), skew(shares.values()))


def report(table: Table = STATE_ASSIGNMENTS) -> str:
    """The document's text about a valid table."""
    sizes = {worker: len(states) for worker, states in table.items()}
    ((usual, _),) = Counter(sizes.values()).most_common(1)
    others = ", ".join(f"worker {worker} has {size}" for worker, size in sizes.items() if size != usual)
    total = sum(sizes.values())
    lines = [
        "✓ State assignments validated successfully",
        f"  - {len(table)} workers",
        f"  - {usual} states per worker{f' ({others})' if others else ''}",
        f"  - {total} total states ({total - 1} + DC)",
        "  - No duplicates",
        "  - No missing states",
    ]
    return "\n".join(lines)


def main() -> int:
    try:
        validate_assignments()
    except ValueError as error:
        print(f"✗ State assignments are not valid: {error}", file=sys.stderr)
        return 1
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
