"""The state scraper: the document's texts and snippets, and a run in a real browser on a real PostgreSQL."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pitboss import App, InvalidInput, State
from pitboss.model.assignment import skew
from pitboss.testing.sandbox import Sandbox, sandbox
from scrape_yp import generate_city_targets, state_assignments
from scrape_yp.database import Database, Progress
from scrape_yp.generate_city_targets import City, cities, store, targets
from scrape_yp.proxy_pool import WorkerProxyPool, read_proxies
from scrape_yp.settings import Settings
from scrape_yp.state_assignments import (
    STATE_ASSIGNMENTS,
    STATES,
    balance,
    get_all_assignments,
    get_proxy_assignments,
    get_states_for_worker,
    get_worker_for_state,
    validate_assignments,
)
from scrape_yp.state_worker_pool import app, crawl_target, profiles, proxies
from scrape_yp.yp_filter import CATEGORIES, Listing, Target, Verdict, YPFilter
from scraper_demo import processes
from scraper_demo.__main__ import run
from scraper_demo.checks import checks
from scraper_demo.processes import Installation, Unfinished
from scraper_demo.site import Rules, Site
from scripts import run_state_workers

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "state_scraper"
TABLE = """
Worker 0: CA, MT, RI, MS, ND
Worker 1: TX, WY, VT, WV, SD
Worker 2: FL, AK, NH, NM, DE
Worker 3: NY, ID, ME, NV, HI
Worker 4: PA, UT, MA, NE, NJ, DC (6 states)
Worker 5: IL, OR, CT, KS, AR
Worker 6: OH, OK, IA, LA, WI
Worker 7: GA, AZ, KY, SC, MN
Worker 8: NC, WA, AL, CO, IN
Worker 9: MI, TN, MD, MO, VA
"""
VALIDATED = """\
✓ State assignments validated successfully
  - 10 workers
  - 5 states per worker (worker 4 has 6)
  - 51 total states (50 + DC)
  - No duplicates
  - No missing states
"""
NEXT_TARGET = """
SELECT * FROM yp_targets
WHERE state_id IN ('CA', 'MT', 'RI', 'MS', 'ND')
  AND status = 'planned'
ORDER BY priority ASC, id ASC
FOR UPDATE SKIP LOCKED
LIMIT 1;
"""
LA = Target("CA", "Los Angeles", "window-cleaning")


def test_the_table_and_the_text_about_it_are_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"Worker (\d): ([A-Z, ]+)", TABLE)
    assert get_all_assignments() == {int(worker): states.strip().split(", ") for worker, states in lines}
    assert state_assignments.main() == 0
    assert capsys.readouterr().out == VALIDATED


def test_the_documents_helpers() -> None:
    assert get_states_for_worker(0) == ["CA", "MT", "RI", "MS", "ND"]
    for wrong in (10, -1):
        with pytest.raises(ValueError, match=rf"^Invalid worker_id: {wrong}\. Must be 0-9\.$"):
            get_states_for_worker(wrong)
    assert [get_worker_for_state(state) for state in ("ca", "CA", "Dc", "va")] == [0, 0, 4, 9]
    with pytest.raises(ValueError, match="Invalid state: ZZ"):
        get_worker_for_state("ZZ")
    assert get_proxy_assignments(0) == [0, 1, 2, 3, 4]
    assert get_proxy_assignments(9, 5) == [45, 46, 47, 48, 49]
    get_all_assignments()[0].append("ZZ")
    assert validate_assignments(), "a caller cannot change the table"


BROKEN: dict[str, tuple[dict[int, tuple[str, ...]], str]] = {
    "two workers": ({1: (*STATE_ASSIGNMENTS[1], "CA")}, "states in two workers: CA (workers 0, 1)"),
    "twice": ({0: (*STATE_ASSIGNMENTS[0], "CA")}, "states twice in one worker: CA (worker 0)"),
    "missing": ({9: ("MI", "TN", "MD", "MO")}, "missing states: VA"),
    "unknown": ({9: (*STATE_ASSIGNMENTS[9], "PR")}, "unknown states: PR"),
    "small letters": ({9: ("mi", "TN", "MD", "MO", "VA")}, "missing states: MI; unknown states: mi"),
    "no states": ({9: ()}, "missing states: MI, MO, TN, VA, MD"),
    "no number 9": ({10: STATE_ASSIGNMENTS[9], 9: ()}, "workers without states: 9"),
    "empty name": ({9: (*STATE_ASSIGNMENTS[9], "")}, "empty states in workers: 9"),
    "below 0": ({-1: ("MI",), 9: ("TN", "MD", "MO", "VA")}, "worker numbers below 0: -1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_refused_with_what_is_wrong(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, wrong = BROKEN[case]
    table = {**STATE_ASSIGNMENTS, **change}
    with pytest.raises(ValueError, match=_words(wrong)):
        validate_assignments(table)
    # Pitboss refuses it too, before any worker starts.
    with pytest.raises(InvalidInput, match="partitions of queue"):
        App().queue("targets", partition_by="{state_id}", mode="static", partitions=table, keys=STATES)
    monkeypatch.setattr(validate_assignments, "__defaults__", (table,))
    assert state_assignments.main() == 1
    assert capsys.readouterr().err.startswith("✗ State assignments are not valid: ")


def _words(text: str) -> str:
    """The text in any order of the names after its colon."""
    what, _, names = text.partition(": ")
    return what + ": " + "".join(f"(?=.*{re.escape(name)})" for name in re.split(r", |; ", names))


@pytest.fixture(scope="module")
def every_city() -> dict[str, list[City]]:
    return cities(STATES)


def test_all_states_have_about_300_000_targets(every_city: dict[str, list[City]]) -> None:
    found = list(targets(every_city))
    assert len(CATEGORIES) == 14
    assert {target.state_id for target, _ in found} == set(STATES)
    assert len(found) == len({target.key for target, _ in found})
    assert 290_000 < len(found) < 320_000
    assert Counter(priority for _, priority in found).keys() == {1, 2, 3}
    largest = every_city["CA"][0]
    assert (largest.name, largest.priority) == ("Los Angeles", 1)


@pytest.mark.parametrize("workers", [10, 5])
def test_the_static_table_beside_a_balanced_division(every_city: dict[str, list[City]], workers: int) -> None:
    counts = {state: 14 * len(found) for state, found in every_city.items()}
    step = 10 // workers
    table = {
        worker: tuple(state for one in range(step) for state in STATE_ASSIGNMENTS[step * worker + one])
        for worker in range(workers)
    }
    even = balance(counts, table)
    mean = sum(counts.values()) / workers
    assert even.balanced <= 1.02 * max(mean, *counts.values()) / mean
    by_hand = [sum(counts[state] for state in states) for states in table.values()]
    assert even.by_table == skew(by_hand)
    assert even.by_table == pytest.approx({10: 1.40, 5: 1.17}[workers], abs=0.02)


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with sandbox(app) as opened:
        yield opened


def test_targets_are_stored_once_with_their_keys(box: Sandbox, every_city: dict[str, list[City]]) -> None:
    few = {state: every_city[state][:2] for state in ("CA", "RI")}
    found = list(targets(few))
    assert store(found) == 2 * 2 * 14
    assert store(found) == 0
    tasks = box.tasks()
    assert Counter(task.partition for task in tasks) == {"CA": 28, "RI": 28}
    assert {task.priority for task in tasks} <= {1, 2, 3}
    more = list(targets({**few, "VT": every_city["VT"][:1]}))
    assert store(more) == 14


@pytest.mark.parametrize("text", ["ZZ", "CA,ZZ", ""])
def test_unknown_states_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        generate_city_targets.main(["--states", text])
    assert ended.value.code == 2
    assert "not a state" in capsys.readouterr().err


GOOD = Listing("1", "Bright Windows", "CA", "Los Angeles", ("Window Cleaning Services",), phone="555-1234")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"phone": "", "website": "http://example.org"}, ""),
        ({"state_id": "ca"}, ""),
        ({"categories": ("Painters", "Window Washing")}, ""),
        ({"sponsored": True}, "sponsored"),
        ({"closed": True}, "closed"),
        ({"name": " "}, "no name"),
        ({"phone": ""}, "no phone and no website"),
        ({"state_id": "NV"}, "in another state"),
        ({"categories": ("Window Cleaning Equipment & Supplies",)}, "other work"),
        ({"categories": ("Bakeries",)}, "another trade"),
        ({"categories": ()}, "another trade"),
        ({"closed": True, "phone": ""}, "closed"),
    ],
)
def test_the_filter_accepts_or_says_why_not(change: dict[str, Any], reason: str) -> None:
    assert YPFilter().check(GOOD._replace(**change), LA) == Verdict(accepted=not reason, reason=reason)


def test_a_listing_is_read_from_a_page_that_shows_more_of_it() -> None:
    shown = {**GOOD._asdict(), "categories": ["Window Cleaning Services"], "stars": 4.5}
    assert Listing.read(shown) == GOOD


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Database]]:
    """A database with Pitboss's tables and the scraper's, and a target in each state of a task."""
    url = (
        f"sqlite:///{tmp_path / 'scraper.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    )
    app.use(url)
    try:
        store([(Target("CA", city, "window-cleaning"), 1) for city in State])
        yield url, Database(url)
    finally:
        app.close()


def test_yp_targets_shows_the_documents_statuses(database: tuple[str, Database]) -> None:
    url, stored = database
    stored.prepare()
    stored.prepare()  # again, as at each launch
    tasks = "pitboss_tasks" if url.startswith("sqlite") else "pitboss.tasks"
    key = "params ->> 'city'" if url.startswith("sqlite") else "params::json ->> 'city'"
    _execute(url, f"UPDATE {tasks} SET state = {key}")
    assert {target.city: status for target, status in stored.targets()} == {
        "held": "planned",
        "scheduled": "planned",
        "pending": "planned",
        "running": "in_progress",
        "completed": "done",
        "failed": "failed",
        "cancelled": "failed",
    }
    assert stored.statistics() == {"CA": {"planned": 3, "in_progress": 1, "done": 1, "failed": 2}}
    if not url.startswith("sqlite"):
        assert _psql(url, "SELECT status, COUNT(*) FROM yp_targets GROUP BY status ORDER BY 1;").split() == [
            "done|1",
            "failed|2",
            "in_progress|1",
            "planned|3",
        ]
        assert _psql(url, NEXT_TARGET).count("\n") == 1


def test_a_page_is_stored_once_and_a_retry_goes_on_after_it(database: tuple[str, Database]) -> None:
    _, stored = database
    stored.prepare()
    page = [(GOOD, Verdict(accepted=True)), (GOOD._replace(id="2"), Verdict(accepted=False, reason="closed"))]
    assert stored.progress(LA) == Progress(next_page=1)
    assert stored.store_page(LA, 1, page, 2) == Progress(2, 1, 1)
    assert stored.store_page(LA, 1, page, 2) == Progress(2, 1, 1), "by an attempt that was given up"
    again = [(GOOD, Verdict(accepted=True)), (GOOD._replace(id="3"), Verdict(accepted=True))]
    assert stored.store_page(LA, 2, again, None) == Progress(None, 3, 1)
    assert stored.listings() == [("1", True, ""), ("2", False, "closed"), ("3", True, "")]


def _execute(url: str, statement: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            file.execute(statement)
        file.close()
    else:
        with psycopg.connect(url) as server:
            server.execute(statement.encode())


def _psql(url: str, command: str) -> str:
    done = subprocess.run(["psql", url, "-At", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def proxy_file(tmp_path: Path) -> Path:
    file = tmp_path / "webshare_proxies.txt"
    file.write_text("# ours\n" + "".join(f"10.0.0.{place}:8080:anna:secret-{place}\n" for place in range(50)))
    return file


def test_a_workers_view_rotates_through_its_own_five_proxies(box: Sandbox, proxy_file: Path) -> None:
    assert proxies.add_many(read_proxies(Settings(proxy_file=proxy_file))) == 50
    own = WorkerProxyPool(proxies, 3)
    assert own.proxy_indices == [15, 16, 17, 18, 19]
    assert [one.name for one in own.proxies()] == [f"10.0.0.{place}:8080" for place in own.proxy_indices]
    used = []
    for _ in range(10):
        with own.get_proxy(wait=0) as proxy:
            used.append(proxy.name)
            assert proxy.secret("password").startswith("secret-")
    assert used[:5] == used[5:]
    assert len(set(used)) == 5
    with pytest.raises(ValueError, match="Invalid worker_id: 10"):
        WorkerProxyPool(proxies, 10)


def test_profiles_of_killed_workers_are_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (str(gone.pid), str(os.getppid()), str(os.getpid())):
        (Path("profiles") / name / "left").mkdir(parents=True)
    profiles.cache_clear()
    own = profiles()
    assert (own, list(own.iterdir())) == (tmp_path / "profiles" / str(os.getpid()), [])
    assert {one.name for one in Path("profiles").iterdir()} == {str(os.getppid()), own.name}
    profiles.cache_clear()


def test_the_documents_names_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE / ".env.example", ".env")
    example = Settings()
    plain = Settings.model_construct()
    assert example.model_dump(exclude={"database_url"}) == plain.model_dump(exclude={"database_url"})
    assert (example.worker_count, example.min_delay_seconds, example.max_delay_seconds) == (10, 8.0, 20.0)
    assert (example.max_targets_per_browser, str(example.proxy_file)) == (100, "data/webshare_proxies.txt")
    assert (example.proxy_rotation_enabled, example.proxy_selection_strategy) == (True, "round_robin")
    assert (example.proxy_blacklist_threshold, example.proxy_blacklist_duration_minutes) == (10, 60)


def test_what_is_declared_follows_the_document() -> None:
    pool = app.pools["state_worker"]
    assert (pool.min_workers, pool.concurrency, pool.max_restarts, pool.log_file) == (
        10,
        1,
        5,
        "state_worker_{slot0}.log",
    )
    queue = app.declared().queues["targets"]
    assert queue.partitions is not None
    assert (queue.partitions.by, queue.partitions.mode, queue.partitions.on_missing) == ("{state_id}", "static", "hold")
    assert queue.partitions.table == STATE_ASSIGNMENTS
    assert crawl_target.queue == "targets"


class Launched(Exception):
    """The launcher would become the manager."""


@pytest.fixture
def launcher(tmp_path: Path, proxy_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sequence[str]]]:
    """The launcher in a folder of its own, on a SQLite file. What it would run is kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").touch()
    url = f"sqlite:///{tmp_path / 'scraper.db'}"
    monkeypatch.setattr(run_state_workers, "settings", Settings(database_url=url, proxy_file=proxy_file))
    commands: list[Sequence[str]] = []

    def become(path: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        commands.append(arguments[1:])
        raise Launched

    monkeypatch.setattr(os, "execve", become)
    app.use(url)
    yield commands
    app.close()


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ([], []),
        (["--yes"], ["--yes"]),
        (["--test"], ["--only", "0,1", "--yes"]),
        (["--workers", "5", "-y"], ["--workers", "5", "--yes"]),
    ],
)
def test_the_launcher_checks_shows_and_launches(
    said: list[str], options: list[str], launcher: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    store([(LA, 1)])
    with pytest.raises(Launched):
        run_state_workers.main(said)
    assert launcher == [["up", "scrape_yp.state_worker_pool:app", "--confirm", *options]]
    out = capsys.readouterr().out
    assert "✗" not in out
    assert "  ✓ 50 proxies in " in out
    assert "Worker 1: TX, WY, VT, WV, SD       proxies 5-9, 5 of 5 enabled" in out
    assert ("Worker 9" in out) == (said in ([], ["--yes"]))
    assert "0.0% of all targets are done" in out
    assert Path("logs/state_worker_pool.log").readlink() == Path("manager.log")


def test_the_launcher_refuses_what_is_missing(
    launcher: list[Sequence[str]], proxy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".env").unlink()
    proxy_file.unlink()
    assert run_state_workers.main(["--yes"]) == 1
    out = capsys.readouterr().out
    assert "✗ .env is missing: cp .env.example .env" in out
    assert f"✗ {proxy_file} is missing: mkdir -p {proxy_file.parent}, and write a proxy per line" in out
    assert out.count("✓") == 3
    assert launcher == []


@pytest.mark.parametrize("number", ["0", "11", "five"])
def test_there_are_states_for_ten_workers(number: str) -> None:
    with pytest.raises(SystemExit):
        run_state_workers.main(["--workers", number])


def test_the_site_throttles_and_bans() -> None:
    site = Site()
    site.rules = Rules(limit=2, window=60, strict={"127.0.0.9": 1})
    asked = "/search?category=deck-cleaning&place=Reno%2C+NV&page=1"
    statuses = [site.answer(asked, "127.0.0.8", "x").status for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert 0 < site.arrivals[-1].retry_after <= 60
    assert [site.answer(asked, "127.0.0.9", "x").status for _ in range(2)] == [200, 429]
    site.ban("127.0.0.7")
    assert site.answer(asked, "127.0.0.7", "x").status == 403


@pytest.mark.timeout(300)
def test_the_demonstration_waits_as_long_as_there_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it gave up after three minutes, with a traceback, while targets were still being done."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock, installed = Clock(), Installation(tmp_path, {"DATABASE_URL": "sqlite:///s.db"})
    monkeypatch.setattr(processes, "time", clock)
    installed.until(lambda: clock.now > 1000, "it is late", lambda: clock.now // 100)
    with pytest.raises(Unfinished, match="no progress in 180 seconds: all targets have ended"):
        installed.until(lambda: False, "all targets have ended", lambda: 7)
    assert clock.now < 1200


@pytest.mark.timeout(300)
def test_a_run_stores_every_listing_once(tmp_path: Path, postgres_dsn: str) -> None:
    """112 targets, four workers, eight proxies, one of them banned midway, one worker killed midway."""
    found = run(tmp_path, postgres_dsn, 2)
    assert [text for text, passed in checks(found) if not passed] == []
    assert found.statuses["done"] + found.statuses["failed"] == 112
    done = _psql(postgres_dsn, "SELECT COUNT(*) FROM yp_targets WHERE status='done';")
    assert done.strip() == str(found.statuses["done"])
    # A missing listing, and one that is there twice, would be found.
    for listings in (found.listings[1:], [*found.listings, found.listings[0]]):
        failed = [text for text, passed in checks(replace(found, listings=listings)) if not passed]
        assert any("are stored once" in text for text in failed)
