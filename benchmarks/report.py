"""The report: tables of all measurements."""

import argparse
import statistics

from benchmarks.circumstances import circumstances
from benchmarks.figures import Figures, Results
from benchmarks.systems import System

_OURS = ("pitboss-sqlite", "pitboss-postgres")
_MISSING = "–"

# column -> phase, and the way to the figure in its answer
_RATES = {
    "enqueue 1": ("enqueue", "one", "rate"),
    "enqueue 1,000": ("enqueue", "1000", "rate"),
    "enqueue 10,000": ("enqueue", "10000", "rate"),
    "drain": ("drain", "drain", "rate"),
    "with start-up": ("drain", "drain", "rate_with_start"),
    "end to end": ("e2e", "e2e", "rate"),
}
_LATENCY = {"pickup p50 ms": ("idle", "pickup", "p50_ms"), "p99 ms": ("idle", "pickup", "p99_ms")}
_REST = {"idle CPU %": ("idle", "idle", "workers_percent"), "server's %": ("idle", "idle", "broker_percent")}
_MEMORY = {"manager MB": ("drain", "drain", "pss_manager"), "workers MB": ("drain", "drain", "pss_workers")}
_CPU = ("producer", "server, enqueueing", "workers", "server, running")


def written(
    given: argparse.Namespace,
    systems: list[System],
    results: Results,
    limits: dict[str, list[dict[str, float]]],
    repeated: int,
) -> str:
    """The whole report."""
    figures = {system.name: Figures(results[system.name]) for system in systems}
    disturbed = sum(one.disturbed() for one in figures.values())
    return "\n".join(
        [
            "# Pitboss compared with its peers\n",
            circumstances(given, repeated, disturbed),
            "## Tasks per second\n",
            _speed_table(systems, figures, limits),
            "## Latency, rest and cost\n",
            _cost_table(systems, figures),
            "## Pitboss against each\n",
            *(_ratio_table(name, systems, figures) for name in _OURS if name in figures),
            "## How each was run\n",
            _how_table(systems, figures),
            *_troubles(figures),
        ]
    )


def _speed_table(systems: list[System], figures: dict[str, Figures], limits: dict[str, list[dict[str, float]]]) -> str:
    rows = []
    for system in systems:
        one = figures[system.name]
        cells = [_spread(one.all(*way)) for way in _RATES.values()]
        if at_once := one.all("enqueue", "best", "rate"):
            cells[1] = f"≈ {_spread(at_once)}"
        late = one.median("drain", "drain", "settle_seconds")
        settled = _MISSING if late is None else f"{late * 1000:.0f}"
        rows.append([system.name, *cells, settled, f"{one.total('lost')} / {one.total('twice')}"])
    rows += [_limit_row(kind, answers) for kind, answers in limits.items()]
    head = ["system", *_RATES, "settled after ms", "lost / twice"]
    return _table(head, rows)


def _limit_row(kind: str, answers: list[dict[str, float]]) -> list[str]:
    def rates(name: str) -> str:
        return _spread([answer[name] for answer in answers])

    puts = [rates(f"put {size}") for size in (1, 1000, 10_000)]
    return [f"*bare SQL, {kind}*", *puts, rates("run 1000"), "", "", "", ""]


def _cost_table(systems: list[System], figures: dict[str, Figures]) -> str:
    rows = []
    for system in systems:
        one = figures[system.name]
        cells = [_spread(one.all(*way)) for way in _LATENCY.values()]
        cells += [_number(one.median(*way)) for way in (_REST | _MEMORY).values()]
        parts = one.cpu()
        cells += [_number(one.cpu_total()), " + ".join(_number(parts.get(part)) for part in _CPU)]
        rows.append([system.name, *cells])
    detail = f"of that: {' + '.join(_CPU)}"
    return _table(["system", *_LATENCY, *_REST, *_MEMORY, "CPU µs/task", detail], rows)


def _ratio_table(ours: str, systems: list[System], figures: dict[str, Figures]) -> str:
    rows = []
    for system in systems:
        if system.name == ours:
            continue
        mine, other = figures[ours], figures[system.name]
        best = [one.median("enqueue", one.best_way(), "rate") for one in (mine, other)]
        cells = [
            _times(mine.median(*_RATES["enqueue 1"]), other.median(*_RATES["enqueue 1"])),
            _times(*best),
            *(_times(mine.median(*_RATES[name]), other.median(*_RATES[name])) for name in ("drain", "end to end")),
            # Less is better here, so the ratio is inverted: above 1 is good for Pitboss in every column.
            *(_times(other.median(*way), mine.median(*way)) for way in _LATENCY.values()),
            _times(other.cpu_total(), mine.cpu_total()),
        ]
        rows.append([system.name, *cells])
    columns = ["enqueue 1", "enqueue, best way", "drain", "end to end", "pickup p50", "pickup p99", "CPU per task"]
    return f"{ours} compared with each: 2 means twice as good, below 1 means worse:\n\n" + _table(["", *columns], rows)


def _how_table(systems: list[System], figures: dict[str, Figures]) -> str:
    rows = []
    for system in systems:
        one = figures[system.name]
        way = one.best_way()
        counts = (("enqueue", "one"), ("enqueue", way), ("drain", "drain"), ("e2e", "e2e"), ("idle", "pickup"))
        numbers = " · ".join(_number(one.median(phase, section, "count")) for phase, section in counts)
        rows.append([system.name, one.versions(), system.best, system.workers, system.kept, numbers])
    numbers = "N: one by one · best way · drain · end to end · pickups"
    return _table(
        ["system", "versions", "best way to enqueue", "workers", "safety, what is kept", numbers], rows, "---"
    )


def _troubles(figures: dict[str, Figures]) -> list[str]:
    # Only the last line: the others contain paths of this machine.
    found = [f"- {name}: {text.splitlines()[-1]}" for name, one in figures.items() for text in one.troubles()]
    return ["## Measurements without a figure\n", "\n".join(found), ""] if found else []


def _number(value: float | None) -> str:
    if value is None:
        return _MISSING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _spread(found: list[float]) -> str:
    if len(found) < 2:
        return _number(found[0] if found else None)
    return f"{_number(statistics.median(found))} ({_number(min(found))}–{_number(max(found))})"


def _times(value: float | None, base: float | None) -> str:
    return f"{value / base:.2f}" if value and base else _MISSING


def _table(head: list[str], rows: list[list[str]], align: str = "--:") -> str:
    lines = [head, ["---", *[align] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
