"""The parts of the comparison that its honesty rests on."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import procfs, report, tally
from benchmarks.figures import Figures, all_ran_once
from benchmarks.systems import QUICK, SYSTEMS
from benchmarks.tally import Tally


def test_a_tally_knows_what_ran_what_did_not_and_what_ran_twice(tmp_path: Path) -> None:
    seen = Tally.create(tmp_path / "tally", 100)
    code = "from benchmarks.tally import mark; [mark(n) for n in (3, 4, 5, 4)]"
    environment = {**os.environ, tally.VARIABLE: str(tmp_path / "tally")}
    worker = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=Path(__file__).parents[2])

    assert worker.wait() == 0
    assert (seen.done(0, 10), seen.done(3, 3), seen.twice(0, 100)) == (3, 3, 1)
    assert seen.workers() == [worker.pid]
    first, last = seen.span(0, 100)
    assert 0 < first <= last


def test_processor_time_of_a_child_that_has_ended_still_counts() -> None:
    before = procfs.cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)

    assert procfs.cpu_seconds([os.getpid()]) - before >= 0.03


def test_a_lost_task_a_second_run_and_a_silent_system_are_noticed() -> None:
    fine = {"sections": {"drain": {"lost": 0, "twice": 0, "rate": 10.0}}}

    assert all_ran_once({"a": {"drain": [fine]}})
    assert not all_ran_once({"a": {"drain": [fine, {"sections": {"drain": {"lost": 1, "twice": 0}}}]}})
    assert not all_ran_once({"a": {"drain": [{"sections": {"drain": {"lost": 0, "twice": 2}}}]}})
    assert not all_ran_once({"a": {"drain": [{"stalled": "0 of 10"}]}})


def test_the_report_takes_medians_and_turns_ratios_so_that_more_is_better() -> None:
    def answers(*rates: float) -> dict[str, list[dict[str, object]]]:
        drains: list[dict[str, object]] = [{"sections": {"drain": {"rate": rate}}} for rate in rates]
        pickup: list[dict[str, object]] = [{"sections": {"pickup": {"p50_ms": 100 / rates[0]}}}]
        return {"enqueue": [], "drain": drains, "e2e": [], "idle": pickup}

    results = {"pitboss-sqlite": answers(300, 100, 200), "huey-sqlite": answers(100, 101, 100)}
    systems = [system for system in SYSTEMS if system.name in results]
    given = argparse.Namespace(scale=1.0, repetitions=3, foreign=0.3)

    text = report.written(given, systems, results, {}, repeated=0)

    assert Figures(results["pitboss-sqlite"]).median("drain", "drain", "rate") == pytest.approx(200)
    assert "200 (100–300)" in text
    assert "| huey-sqlite | – | – | 2.00 | – | 3.00 | – | – |" in text


def test_every_system_has_a_name_of_its_own_and_the_quick_ones_exist() -> None:
    names = [system.name for system in SYSTEMS]

    assert len(names) == len(set(names))
    assert set(QUICK) <= set(names)
