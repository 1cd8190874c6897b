"""Managers that divide the keys of a queue: numbers of workers, deaths, restarts, sizes, pauses."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND
from pitboss.model.log_settings import LogSettings
from pitboss.model.partition import Partition
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.snapshot import read
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.telemetry.logs.files import log_files
from pitboss.worker.describe import described
from tests.manager.cluster import Cluster, ManagerProcess, pool

TARGET = str(Path(__file__).with_name("states.py"))
QUEUE = "targets"
STATES = [f"S{number:02}" for number in range(12)]
TTL = 4.0


class States(Cluster):
    """A cluster whose queue has partitions."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder, TARGET)
        assert isinstance(self.engine, FullStore)
        self.store: FullStore = self.engine
        self.do(self.store.declare(described(TARGET).declared))

    def scrapers(self, host: str, workers: int = 2, ttl: float = 15, **settings: Any) -> ManagerProcess:
        """A manager on this host, when its workers have slots."""
        spec = pool("scrapers", workers=workers, concurrency=1, **settings)
        manager = self.manager(spec, ttl=f"{ttl}s", elsewhere=host)
        self.until(lambda: len(self.slots(host)) == len(spec.places(workers)), what=f"slots of {host}")
        return manager

    def crawl(self, count: int = 1, seconds: float = 0.0) -> list[str]:
        return [one for state in STATES for one in self.put("crawl", count, QUEUE, state=state, seconds=seconds)]

    def began(self, since: float = 0.0) -> dict[str, float]:
        """When the first task of each state began since then, by the handlers' own clock."""
        ran = ((state, int(moment) / 1e9) for state, moment, _ in self.traced())
        return dict(reversed([(state, at) for state, at in ran if at > since]))

    def done(self, ids: list[str]) -> bool:
        return all(task.state is State.COMPLETED for task in self.told(ids))

    def told(self, ids: list[str]) -> list[Task]:
        return [task for task in self.do(self.engine.get(ids)) if task is not None]

    def keys(self) -> list[Partition]:
        return list(self.do(self.store.partitions(QUEUE, counts=False)))

    def owners(self) -> dict[str, str | None]:
        return {one.key: one.owner for one in self.keys()}

    def settled(self) -> bool:
        keys = self.keys()
        return len(keys) == len(STATES) and all(one.owner and one.moving_to is None for one in keys)

    def slots(self, host: str) -> dict[int, int]:
        """The numbers of a host's workers by place."""
        found: list[PoolSlot] = self.do(self.store.slots())
        return {one.place: one.number for one in found if one.node.removesuffix("~only") == host and one.live}

    def published(self, host: str) -> dict[str, int | None]:
        """The number of each worker, as `pitboss ps` shows it."""
        sessions = [one for one in self.do(self.engine.sessions()) if one.info.host == host and not one.ended]
        told = read(sessions[-1].snapshot) if sessions else None
        return {worker.name: worker.slot for worker in told.workers} if told is not None else {}


@pytest.fixture(params=["sqlite", "postgres"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[States]:
    on_file = request.param == "sqlite"
    cluster = States(f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn"), tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


def test_numbers_count_over_all_hosts_and_a_restart_keeps_them_and_the_keys(states: States) -> None:
    first = states.scrapers("north")
    assert states.slots("north") == {0: 0, 1: 1}
    states.until(lambda: first.said("pool scrapers: workers 1-2 are slots 0-1 (node north)"))
    ids = states.crawl()
    states.until(lambda: states.done(ids))
    states.scrapers("south")
    assert states.slots("south") == {0: 2, 1: 3}
    states.until(lambda: states.settled() and len(set(states.owners().values())) == 4, what="a share for each slot")
    states.until(lambda: states.published("south") == {"scrapers-1": 2, "scrapers-2": 3})
    before = states.owners()
    first.end()
    states.scrapers("north")
    assert states.slots("north") == {0: 0, 1: 1}
    again = states.crawl()
    states.until(lambda: states.done(again))
    assert states.owners() == before
    ran = {task.partition: task.worker for task in states.told(again)}
    workers = {f"scrapers/{number}": f"scrapers-{number % 2 + 1}" for number in range(4)}
    assert ran == {key: workers[owner or ""] for key, owner in before.items()}


def test_a_worker_that_is_killed_keeps_its_keys(states: States) -> None:
    manager = states.scrapers("north")
    ids = states.crawl(seconds=1)
    states.until(lambda: states.settled() and len(states.traced()) >= 2)
    before = states.owners()
    os.kill(manager.workers()[0].pid, signal.SIGKILL)
    states.until(lambda: states.done(ids))
    assert states.owners() == before
    assert sum(task.losses for task in states.told(ids)) == 1
    names = {"scrapers/0": "scrapers-1", "scrapers/1": "scrapers-2"}
    assert {task.partition: task.worker for task in states.told(ids)} == {
        key: names[owner or ""] for key, owner in before.items()
    }


def test_the_keys_of_a_manager_that_is_killed_run_again_within_its_life_and_two_seconds(states: States) -> None:
    leader = states.scrapers("north", ttl=TTL)
    states.scrapers("south", ttl=TTL)
    known = states.crawl()
    states.until(lambda: states.done(known) and len(set(states.owners().values())) == 4, what="a share for each slot")
    mine = {f"scrapers/{number}" for number in states.slots("north").values()}
    lost = {key for key, owner in states.owners().items() if owner in mine}
    assert lost
    owned = set(states.slots("south").values())
    ids, before = states.crawl(seconds=0.3), len(states.traced())
    states.until(lambda: len(states.traced()) >= before + 4)
    leader.signal(signal.SIGKILL)
    killed = time.monotonic()
    states.until(lambda: states.done(ids), within=TTL + 30)
    began = states.began(since=killed)
    late = {key: began.get(key, killed) - killed - TTL for key in lost}
    assert max(late.values()) < 2, late
    assert {f"scrapers/{number}" for number in owned} == set(states.owners().values())
    assert sum(task.losses for task in states.told(ids)) == 2


def test_a_manager_on_another_host_takes_over_the_slots_of_the_table(
    states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that came back under another name kept numbers that the table does not have, and all keys waited."""
    monkeypatch.setenv("STATES_SLOTS", "2")
    states.do(states.store.declare(described(TARGET).declared))
    first = states.scrapers("box-1", ttl=TTL)
    states.until(lambda: states.slots("box-1") == {0: 0, 1: 1})
    first.end()
    states.scrapers("box-2", ttl=TTL)
    ended = time.monotonic()
    ids = states.crawl()
    states.until(lambda: states.done(ids), within=TTL + 15)
    assert max(states.began().values()) - ended < TTL + 5
    assert states.slots("box-2") == {0: 0, 1: 1}


def test_only_some_workers_of_a_pool(states: States) -> None:
    states.scrapers("north", workers=4, only=(1, 3))
    assert states.slots("north") == {1: 1, 3: 3}
    states.until(lambda: states.published("north") == {"scrapers-2": 1, "scrapers-4": 3})
    ids = states.crawl()
    states.until(lambda: states.done(ids))
    assert {task.worker for task in states.told(ids)} == {"scrapers-2", "scrapers-4"}
    (told,) = states.snapshots()
    assert (told.pools[0].wanted, told.pools[0].most) == (2, 4)


def test_a_pool_that_changes_its_size_takes_slots_and_gives_them_up(states: States) -> None:
    states.scrapers("north", workers=3)
    ids = states.crawl()
    states.until(lambda: states.done(ids))
    states.wish("scrapers", size=1)
    states.until(lambda: set(states.owners().values()) == {"scrapers/0"}, what="all keys at the only slot")
    assert states.slots("north") == {0: 0}
    states.wish("scrapers", size=4)
    states.until(lambda: len(set(states.owners().values())) == 4, what="a share for each slot")
    again = states.crawl()
    states.until(lambda: states.done(again))


def test_a_reload_with_a_new_session_keeps_the_slots(states: States, tmp_path: Path) -> None:
    code = Path(TARGET).read_text()
    file = tmp_path / "app.py"
    file.write_text(code)
    states.target = str(file)
    manager = states.scrapers("north")
    ids = states.crawl()
    states.until(lambda: states.done(ids))
    before, sessions = states.owners(), len(states.do(states.engine.sessions()))
    file.write_text(code + "\n\n@app.task\nasync def more() -> None: ...\n")
    manager.reload(manager.plan)
    states.until(lambda: manager.said("reloaded"))
    states.until(lambda: len(states.do(states.engine.sessions())) > sessions)
    again = states.crawl()
    states.until(lambda: states.done(again))
    assert states.slots("north") == {0: 0, 1: 1}
    assert states.owners() == before


def test_pauses_that_an_operator_sets_hold_within_seconds_and_after_a_restart(states: States) -> None:
    manager = states.scrapers("north", workers=1, delay=(600 * SECOND, 600 * SECOND))
    ids = states.crawl()
    states.until(states.traced)
    assert not states.done(ids)
    states.wish("scrapers", delay=(SECOND // 20, SECOND // 10))
    states.until(lambda: states.done(ids))
    states.until(lambda: manager.said("pool scrapers pauses 50ms-100ms after each task from now on"))
    manager.end()
    states.scrapers("north", workers=1, delay=(600 * SECOND, 600 * SECOND))
    again = states.crawl()
    states.until(lambda: states.done(again))
    states.do(states.engine.wish("pool/scrapers", None))
    states.until(lambda: states.managers[-1].said("pauses 10m after each task from now on"))


def test_log_files_have_the_names_that_the_pool_declares(states: States, tmp_path: Path) -> None:
    states.logs = LogSettings(folder=str(tmp_path / "logs"))
    states.scrapers("north", log_file="state_worker_{slot0}.log")
    ids = states.crawl()
    states.until(lambda: states.done(ids))
    assert {file.path.name: file.name for file in log_files(tmp_path / "logs")} == {
        "manager.log": "manager",
        "state_worker_0.log": "scrapers-1",
        "state_worker_1.log": "scrapers-2",
    }
    lines = [msgspec.json.decode(line) for line in (tmp_path / "logs" / "manager.log").read_text().splitlines()]
    (taken,) = (line for line in lines if line["event"] == "slots taken")
    assert (taken["node"], taken["slots"]) == ("north", {"1": 0, "2": 1})
