"""`pitboss activity`: happenings and acts as one list."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.duration import SECOND
from pitboss.model.happening import Kind, happening
from pitboss.model.ids import make_id
from tests.cli.command_line import Process, new, pitboss, put, with_store


def happened(*kinds: Kind, ago: int = 0) -> None:
    """These, a second apart, the last one `ago` seconds ago."""

    async def record(store: Any) -> None:
        now = store.clock.now()
        ages = [(ago + len(kinds) - 1 - number) * SECOND for number in range(len(kinds))]
        rows = [
            happening(
                make_id((now - age) // 1000, 0, age), now - age, kind, "pool default", f"it is {kind}", host="box1"
            )
            for kind, age in zip(kinds, ages, strict=True)
        ]
        await store.record_happenings(rows)

    with_store(record)


def kinds(*args: str) -> list[str]:
    return [one["kind"] for one in pitboss("activity", "--json", *args).json()["activity"]]


@pytest.fixture(autouse=True)
def store(folder: Path) -> None:
    put(new(queue="mail"))


def test_a_store_in_which_nothing_happened_says_so() -> None:
    assert pitboss("activity").err == "nothing has happened\n"


def test_happenings_and_acts_are_one_list_by_time() -> None:
    happened(Kind.WORKER_CRASHED, Kind.STORE_AWAY, ago=5)
    pitboss("queues", "pause", "mail")
    answer = pitboss("activity")
    act, away, crashed = answer.out.splitlines()
    assert act.endswith(f"act              {operator()}: queues pause mail (cli {operator().partition('@')[2]})")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  store_away       it is store_away", away)
    assert crashed.endswith("worker_crashed   it is worker_crashed")


def test_what_is_shown_can_be_chosen() -> None:
    happened(Kind.WORKER_CRASHED, Kind.STORE_AWAY, ago=7200)
    happened(Kind.STORE_BACK, ago=60)
    pitboss("queues", "pause", "mail")
    assert kinds() == ["act", "store_back", "store_away", "worker_crashed"]
    assert kinds("--since", "1h") == ["act", "store_back"]
    assert kinds("--kind", "store_away", "--kind", "store_back") == ["store_back", "store_away"]
    assert kinds("--kind", "act") == ["act"]


def test_a_list_is_continued() -> None:
    happened(Kind.WORKER_CRASHED, Kind.STORE_AWAY, Kind.STORE_BACK, ago=5)
    pitboss("queues", "pause", "mail")
    first = pitboss("activity", "-n", "3", "--json").json()
    assert pitboss("activity", "-n", "3").err == f"there may be more: repeat with --before {first['next']}\n"
    assert kinds("--before", first["next"]) == ["worker_crashed"]


def test_both_have_the_same_keys() -> None:
    happened(Kind.WORKER_CRASHED)
    pitboss("queues", "pause", "mail")
    act, crash = pitboss("activity", "--json").json()["activity"]
    assert act.keys() == crash.keys()
    assert (act["who"], act["act"], act["host"], act["severity"]) == (operator(), "queues pause", None, "info")
    assert (crash["who"], crash["host"], crash["severity"], crash["count"]) == (None, "box1", "warning", 1)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    answer = pitboss("activity", "--kind", "worker_died")
    assert answer.code == Exit.USAGE
    assert "worker_crashed" in answer.err


def test_what_is_new_is_followed_and_shown_once(folder: Path) -> None:
    happened(Kind.STORE_AWAY, Kind.STORE_BACK, ago=5)
    with Process("activity", "--follow", cwd=folder) as process:
        process.until("store_back")
        # One that was written late, and a new one.
        happened(Kind.WORKER_CRASHED, ago=30)
        happened(Kind.POOL_SCALED)
        process.until("it is pool_scaled")
        process.until("it is worker_crashed")
        process.tell(signal.SIGINT)
        assert process.ended() == 0
        shown = [line.split()[2] for line in process.said.splitlines()]
    assert shown[:2] == ["store_away", "store_back"]
    assert sorted(shown[2:]) == ["pool_scaled", "worker_crashed"]
