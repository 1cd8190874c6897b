"""The tests that the document names for its queue of batches, and a run of the whole system."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from httpx import HTTPStatusError

from pitboss import NotFound
from pitboss.client.client import Client
from pitboss.engines.protocol import Queues
from pitboss.model.batch import BatchStatus
from pitboss.model.limits import Window
from story_checker.app import QUEUE, app, create_batch, database, proxies, trigger
from story_checker.queue_manager import BatchStateError, QueueManager, as_document
from story_checker.settings import WrongSetting
from story_checker.stand_in.http1 import Request, Response, Server
from story_checker.stand_in.site import HouseRules
from story_checker.stand_in.world import World
from story_checker.upkeep import Notice, deliver
from tests.examples.checker_stage import HOUR, SETTINGS, Stage, until

GENEROUS = HouseRules(limit=1000, window=HOUR)
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "story_checker"
MINUTE = round(HOUR / 60 * 1000) * 1000
PITBOSS = Path(sys.executable).with_name("pitboss")
_numbers = count(1)


class Running(Stage):
    """A stage with a running `pitboss up`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GENEROUS, proxies=4)
        self._log = folder / "manager.log"

    def __enter__(self) -> "Running":
        super().__enter__()
        self.pool(cookies=False)
        with self._log.open("wb") as log:
            environment = {**os.environ, "PITBOSS_STORE": self.url, "PITBOSS_LOGS": str(self._log.parent / "logs")}
            self.manager = subprocess.Popen([PITBOSS, "up"], cwd=FOLDER, env=environment, stdout=log, stderr=log)
        return self

    def change(self, **settings: Any) -> None:
        """Change settings while it runs."""
        replace(SETTINGS, site=self.site.url, **settings).save(database)

    def __exit__(self, *_: object) -> None:
        self.manager.send_signal(signal.SIGTERM)
        try:
            assert self.manager.wait(30) == 0, self._log.read_text()
        finally:
            self.manager.kill()
            super().__exit__()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Started once: its start takes longer than most tests."""
    with Running(tmp_path_factory.mktemp("running")) as stage:
        yield stage


@pytest.fixture
def running(started: Running) -> Running:
    started.take_over()
    return started


@pytest.fixture
def still(tmp_path: Path) -> Iterator[Stage]:
    """No manager runs, so batches stay where they are put."""
    with Stage(tmp_path, GENEROUS, proxies=1) as stage:
        yield stage


def niche(stage: Stage, profiles: int = 4, *unknown: str) -> str:
    """A new niche; `unknown` are profiles that the site does not know."""
    name = f"niche-{os.getpid()}-{next(_numbers)}"
    database.add_niche(name)
    database.import_profiles(name, [*stage.profiles(profiles, name), *unknown])
    return name


def batches(stage: Stage, many: int, profiles: int = 4) -> list[str]:
    return [create_batch(niche(stage, profiles)).id for _ in range(many)]


def no_profiles() -> None:
    """Other tests have left niches; none of their profiles is to be checked."""
    for name in database.niches():
        for username in database.usernames(name, 10_000):
            database.suspend(username)


def line() -> list[str]:
    return [batch.id for batch in QueueManager.get_queue()]


def ended(batch: str) -> None:
    app.batch_handle(batch).wait("30s")


def test_queue_ordering(still: Stage) -> None:
    first, second, third, fourth = batches(still, 4)
    running = QueueManager.get_running_batch()
    assert running is not None
    assert running.id == first
    assert line() == [second, third, fourth]
    assert QueueManager.get_next_position() == 4
    app.batch_handle(third).cancel()
    assert [batch.position for batch in QueueManager.get_queue()] == [1, 2], "no gap"


def test_the_first_batch_stands_at_position_0(still: Stage) -> None:
    assert QueueManager.get_next_position() == 0
    assert QueueManager.get_running_batch() is None
    assert QueueManager.promote_next_batch() is None
    (batch,) = batches(still, 1)
    assert as_document(app.batch_handle(batch).batch())["status"] == "in_progress"


def test_batch_promotion_happens_once(still: Stage) -> None:
    """The document marks a batch as completed and then promotes, although marking has already promoted."""
    first, second, third = batches(still, 3)
    app.batch_handle(first).cancel()
    QueueManager.mark_completed(first)
    for _ in range(2):
        promoted = QueueManager.promote_next_batch()
        assert promoted is not None
        assert promoted.id == second
    assert line() == [third]


def test_queue_reordering(still: Stage) -> None:
    first, second, third, fourth = batches(still, 4)
    assert [batch.id for batch in QueueManager.reorder([fourth, second])] == [fourth, second, third]
    QueueManager.move_to_end(fourth)
    assert line() == [second, third, fourth]
    QueueManager.move_to_end(first)
    assert line() == [third, fourth, first]
    running = QueueManager.get_running_batch()
    assert running is not None
    assert running.id == second, "the slot of the one that went to the end is taken"


def test_concurrent_batch_operations(still: Stage) -> None:
    names = [niche(still, 2) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        made = {handle.id for handle in threads.map(create_batch, names)}
        assert {batch.id for batch in app.batches("running", "queued")} == made
        victim, *others = line()
        jobs: list[Future[Any]] = [threads.submit(app.batch_handle(victim).cancel)]
        jobs += [threads.submit(QueueManager.move_to_end, one) for one in others[:3]]
        jobs += [threads.submit(QueueManager.promote_next_batch) for _ in range(4)]
        for job in jobs:
            job.result(30)
    assert len(app.batches("running")) == 1
    assert [batch.position for batch in QueueManager.get_queue()] == [1, 2, 3, 4, 5, 6]


def test_batch_state_validation(still: Stage) -> None:
    first, second = batches(still, 2)
    with pytest.raises(BatchStateError, match="4 of 4 items open"):
        QueueManager.mark_completed(first)
    with pytest.raises(BatchStateError, match="running and cannot be resumed"):
        QueueManager.resume(first)
    with pytest.raises(BatchStateError, match="running and cannot be reordered"):
        QueueManager.reorder([first])
    app.batch_handle(second).cancel()
    for act in (QueueManager.pause, QueueManager.resume, QueueManager.move_to_end):
        with pytest.raises(BatchStateError, match="cancelled and cannot be"):
            act(second)
    with pytest.raises(NotFound):
        QueueManager.pause("01890000-0000-7000-8000-000000000000")


def test_resume_paused_batch_with_promotion(still: Stage) -> None:
    first, second, third = batches(still, 3)
    QueueManager.pause(first)
    promoted = QueueManager.get_running_batch()
    assert promoted is not None
    assert promoted.id == second
    assert QueueManager.resume(first).status is BatchStatus.QUEUED
    assert line() == [first, third], "back at its old place"


def rate_of_the_queue() -> list[Window]:
    async def read(client: Client) -> list[Window]:
        assert isinstance(client.store, Queues)
        return [window for queue in await client.store.queues() if queue.name == QUEUE for window in queue.rate]

    return app.ask(read, limit=15, what="reading the queue")


def test_profiles_per_minute_is_the_rate_of_the_queue(still: Stage) -> None:
    """Before the first check can run."""
    batches(still, 1)
    assert rate_of_the_queue() == [Window(SETTINGS.profiles_per_minute, MINUTE)]


def test_pitboss_up_applies_profiles_per_minute(running: Running) -> None:
    """Without any other process: the start-up task does it, and again when the setting changes."""
    until(lambda: rate_of_the_queue() == [Window(SETTINGS.profiles_per_minute, MINUTE)], "it is applied")
    running.change(profiles_per_minute=29)
    until(lambda: rate_of_the_queue() == [Window(29, MINUTE)], "the new one is applied")


def test_auto_trigger_creates_the_next_batch_after_the_interval(still: Stage) -> None:
    no_profiles()
    name = niche(still)
    database.add_niche("empty")
    hourly = replace(SETTINGS, min_trigger_interval=60)
    (first,) = trigger(hourly)
    assert (first.batch().name, first.batch().total) == (name, 4)
    assert trigger(hourly) == [], "it is open"
    first.cancel()
    assert trigger(hourly) == [], "it is too young"
    until(lambda: trigger(hourly), "the next one", within=HOUR + 2)
    assert [batch.name for batch in app.batches("running")] == [name]


def test_auto_trigger_and_notifications_under_pitboss_up(running: Running) -> None:
    no_profiles()
    name = niche(running, 3, f"stranger-{next(_numbers)}")
    running.change(
        auto_trigger_enabled=True,
        min_trigger_interval=100_000,
        notifications_enabled=True,
        notification_email="ann@example.org",
    )
    figures = "status: done_with_errors, profiles: 4, checked: 3, failed: 1, stories: 1"
    wanted = ("ann@example.org", f"batch of {name} is done_with_errors", figures)
    until(lambda: wanted in database.outbox(), "a batch was created by itself, ended, and was told of")
    out = proxies.members()[0].name
    proxies.disable(out, reason="looks slow")
    try:
        said = ("ann@example.org", f"proxy {out} is disabled", f"{out} is not used until it is enabled: looks slow")
        until(lambda: said in database.outbox(), "a proxy was taken out")
    finally:
        proxies.enable(out)
    assert len([one for one in app.batches(limit=1000) if one.name == name]) == 1, "the interval is kept"


async def test_a_notice_goes_to_the_webhook_and_once_to_the_outbox() -> None:
    notice = Notice(f"key-{next(_numbers)}-{os.getpid()}", "proxy p is blacklisted", "p is not used")
    posted: list[tuple[str, bytes]] = []

    async def hook(request: Request) -> Response:
        posted.append((request.headers["idempotency-key"], request.body))
        return Response(500 if len(posted) == 1 else 200, b"")

    with World(GENEROUS, proxies=0) as world:
        server = Server(hook)
        world.do(server.start())
        system = replace(SETTINGS, notification_webhook=server.url)
        with pytest.raises(HTTPStatusError):
            await deliver(notice, system, database)
        for _ in range(2):
            assert await deliver(notice, system, database) == "webhook and outbox"
        world.do(server.stop())
    assert [key for key, _ in posted] == [notice.key] * 3
    assert json.loads(posted[-1][1]) == notice._asdict()
    assert [said for said in database.outbox() if said[2] == "p is not used"] == [
        ("operator", "proxy p is blacklisted", "p is not used")
    ]


def settings(*words: str, file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "story_checker", "settings", *words],
        cwd=FOLDER,
        env={**os.environ, "STORY_CHECKER_DB": str(file)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_settings_are_shown_and_set(tmp_path: Path) -> None:
    file = tmp_path / "own.db"
    done = settings("set", "max_threads", "7", file=file)
    assert done.stdout == "max_threads is 7; it counts from the next start or reload (kill -HUP) on\n"
    assert "from the next minute on" in settings("set", "auto_trigger_enabled", "off", file=file).stdout
    shown = settings("show", file=file).stdout
    assert re.search(r"^max_threads +7 ", shown, re.MULTILINE)
    assert re.search(r"^auto_trigger_enabled +false ", shown, re.MULTILINE)
    wrong = settings("set", "max_threads", "many", file=file)
    assert (wrong.returncode, wrong.stderr) == (2, "error: max_threads is a whole number, not 'many'\n")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("max_thread", "3", "there is no setting max_thread; there are: max_threads,"),
        ("max_threads", "0", "is from 1 to"),
        ("proxy_cooldown", "nan", "is from 0.1 to"),
        ("hour", "-1", "is from 0.1 to"),
        ("notifications_enabled", "maybe", "is true or false"),
        ("notification_email", "ann", "is an address"),
        ("notification_webhook", "example.org", "is a URL"),
        ("site", "", "is a URL"),
    ],
)
def test_a_wrong_setting_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(WrongSetting, match=said):
        SETTINGS.changed(name, text)


def test_basic_queue_operations(running: Running) -> None:
    """Three batches go through the queue. Their results are kept apart from their outcomes."""
    made = batches(running, 3, profiles=6)
    for batch in made:
        ended(batch)
    told = [as_document(app.batch_handle(batch).batch()) for batch in made]
    assert [one["status"] for one in told] == ["done"] * 3
    assert [(one["successful_checks"], one["failed_checks"]) for one in told] == [(6, 0)] * 3
    assert [len(one["profiles_with_stories"]) for one in told] == [3] * 3
    starts = [batch.started_at or 0 for batch in (app.batch_handle(one).batch() for one in made)]
    assert starts == sorted(starts)
    assert running.violations() == 0


def test_error_handling(running: Running) -> None:
    """A failed check ends its item, not the batch, and the queue continues."""
    wrong = create_batch(niche(running, 3, f"stranger-{next(_numbers)}")).id
    behind = create_batch(niche(running, 3)).id
    ended(behind)
    told = app.batch_handle(wrong).batch()
    assert told.status is BatchStatus.DONE_WITH_ERRORS
    assert [task.error.category for task in app.batch_handle(wrong).items(state="failed") if task.error] == [
        "unknown_profile"
    ]
    assert as_document(told)["successful_checks"] == 3
    assert all(member.record.failures == 0 for member in proxies.members()), "no proxy is blamed"


def test_each_retry_goes_through_another_proxy(running: Running) -> None:
    running.site.cut.add(running.address(1))
    try:
        batch = create_batch(niche(running, 8)).id
        ended(batch)
    finally:
        running.site.cut.clear()
        proxies.reset()
    assert app.batch_handle(batch).status is BatchStatus.DONE
    assert {result.proxy for result in database.results(batch)}.isdisjoint({running.proxy(1).url[7:]})


def test_resume_paused_batch(running: Running) -> None:
    """A pause loses no item and repeats none."""
    name = niche(running, 24)
    handle = create_batch(name)
    until(lambda: handle.batch().finished >= 3, "some of it is done")
    QueueManager.pause(handle.id)
    until(lambda: handle.status is BatchStatus.PAUSED, "what ran has ended")
    before = handle.batch()
    assert 0 < before.finished < before.total
    QueueManager.resume(handle.id)
    ended(handle.id)
    assert {result.username for result in database.results(handle.id)} == {f"{name}_{n}" for n in range(24)}
    assert all(running.answered(f"{name}_{n}") == 1 for n in range(24))
    assert running.violations() == 0


def test_killed_worker_loses_no_check_and_no_proxy(running: Running) -> None:
    handle = create_batch(niche(running, 16))
    until(lambda: handle.batch().finished >= 2, "some of it is done")
    victim = next(
        child
        for child in psutil.Process(running.manager.pid).children()
        if any("pitboss.worker.main" in word for word in child.cmdline())
    )
    victim.kill()
    ended(handle.id)
    assert handle.status is BatchStatus.DONE
    assert len(database.results(handle.id)) == 16
    until(lambda: all(member.in_use == 0 for member in proxies.members()), "every proxy was given back")
    assert running.violations() == 0


def test_the_one_command(tmp_path: Path) -> None:
    """The demo runs to its end, and its summary has no violation."""
    done = subprocess.run(
        [FOLDER / "run", "--folder", tmp_path, "--profiles", "5"],
        env={**os.environ, "PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("cooking   done_with_errors", "pottery   done", "failed: 1 unknown_profile", "0 violations"):
        assert said in done.stdout, done.stdout
