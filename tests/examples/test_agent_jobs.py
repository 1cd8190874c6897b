"""The example of scheduled jobs and events: the document's snippets, days of ticks, handlers, and the demonstration."""

import importlib
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND
from pitboss.model.session import SessionInfo
from pitboss.testing.clock import FakeClock
from pitboss.testing.sandbox import Sandbox, sandbox
from pitboss.upkeep.fire import Firer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent_jobs"
OWN_SETTINGS = ("WORKER_", "APP_CORE_", "AGENT_", "PITBOSS_")
ZONE = ZoneInfo("Europe/Prague")
PATIENCE = 60.0
SNIPPETS = """
import asyncio
from app_core import archive_old_conversations, cleanup_expired_sessions, core, initialize_user_workspace
from workers.events import event_handler
from workers.scheduled import scheduled_task

# Example scheduled task
@scheduled_task(cron="0 0 * * *")  # Run daily at midnight
async def daily_cleanup():
    # Clean up old sessions
    await cleanup_expired_sessions()
    # Archive old conversations
    await archive_old_conversations()

# Example event handler
@event_handler("user.signup")
async def handle_signup(event_data):
    # Process user signup
    user_id = event_data["user_id"]
    # Initialize user resources
    await initialize_user_workspace(user_id)

from workers.scheduled import scheduled_task

@scheduled_task(
    name="custom_task",
    cron="*/15 * * * *",  # Run every 15 minutes
    retry_limit=3
)
async def custom_task():
    # Task implementation
    pass

task_config = {
    "timeout": 60,
    "priority": 1,
    "retry_delay": 300
}

from workers.events import event_handler

@event_handler("custom.event")
async def handle_custom_event(event_data):
    # Handler implementation
    pass

event_config = {
    "queue": "high_priority",
    "max_retries": 3,
    "timeout": 30
}

# Example logging configuration
import logging

logging.config.dictConfig({
    'version': 1,
    'handlers': {
        'console': {
            'class': 'logging.StreamHandler',
            'level': 'INFO'
        },
        'file': {
            'class': 'logging.FileHandler',
            'filename': 'worker.log',
            'level': 'DEBUG'
        }
    }
})

# Example retry decorator
def with_retry(max_retries=3, backoff_factor=2):
    def decorator(func):
        async def wrapper(*args, **kwargs):
            retry_count = 0
            while retry_count < max_retries:
                try:
                    return await func(*args, **kwargs)
                except Exception as e:
                    retry_count += 1
                    if retry_count == max_retries:
                        raise
                    await asyncio.sleep(backoff_factor ** retry_count)
        return wrapper
    return decorator
"""
USE = """
from pitboss.testing.sandbox import sandbox
from workers.events import app as events
from workers.scheduled import app as scheduled

@scheduled_task(cron="@hourly", task_config=task_config)
async def configured(): ...

@event_handler("configured.event", event_config=event_config)
@with_retry(max_retries=2, backoff_factor=0.01)
async def flaky(event_data):
    calls.append(event_data)
    if len(calls) < 2:
        raise ConnectionError("once")

calls = []
assert configured.policy.timeout == 60_000_000 and configured.options.priority == 1
assert configured.policy.backoff.base == 300_000_000 and custom_task.policy.max_attempts == 4
wrapped = events.handlers["wrapper"]
assert (wrapped.queue, wrapped.policy.max_attempts, wrapped.policy.timeout) == ("high_priority", 4, 30_000_000)

core.add_session("ada", expires_in=-1)
core.add_conversation("ada", "old", age=1e7)
with sandbox(scheduled) as box:
    daily_cleanup.enqueue()
    custom_task.enqueue()
    assert [task.state for task in box.drain()] == ["completed"] * 2
with sandbox(events) as box:
    events.publish("user.signup", {"user_id": "ada"})
    events.publish("custom.event", {})
    events.publish("configured.event", {"a": 1})
    assert [task.state for task in box.drain()] == ["completed"] * 3
assert calls == [{"a": 1}] * 2
assert core.all("SELECT * FROM sessions") == []
assert core.all("SELECT archived_at FROM conversations")[0]["archived_at"] is not None
assert len(core.all("SELECT * FROM folders WHERE user_id = 'ada'")) == 3
core.close()
print("all of it works")
"""


def environment(**more: str) -> dict[str, str]:
    """Nothing that this machine says about workers counts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)} | more


def python(*arguments: str, own: dict[str, str], cwd: Path = EXAMPLE) -> "subprocess.CompletedProcess[str]":
    own = environment(PYTHONPATH=str(EXAMPLE), **own)
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=own, capture_output=True, text=True, check=False, timeout=100
    )


class Example(NamedTuple):
    """Its modules, which are imported only for these tests."""

    core: Any
    scheduled: Any
    events: Any
    publishing: Any
    settings: Any


@pytest.fixture(scope="module")
def imported() -> Iterator[Example]:
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(OWN_SETTINGS) and name != "PITBOSS_SECRET_KEYS":
                patch.delenv(name)
        patch.setenv("WORKER_TIMEZONE", ZONE.key)
        patch.setenv("WORKER_SAMPLES", "1h")
        patch.setenv("AGENT_WEBHOOK", "http://127.0.0.1:1/notices")
        patch.syspath_prepend(str(EXAMPLE))
        patch.chdir(EXAMPLE)
        yield Example(
            importlib.import_module("app_core").core,
            importlib.import_module("workers.scheduled.tasks").app,
            importlib.import_module("workers.events.handlers").app,
            importlib.import_module("workers.events.utils.publishing"),
            importlib.import_module("workers.settings"),
        )
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("app_core", "workers"):
            del sys.modules[name]


@pytest.fixture
def example(imported: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """On an app core of its own."""
    monkeypatch.setenv("WORKER_QUEUE_URL", str(tmp_path / "queue.db"))
    imported.core.use(tmp_path / "core.db")
    yield imported
    for app in (imported.scheduled, imported.events):
        app.close()
    imported.core.close()


class Days:
    """Drives the schedules by a clock that does not wait. Nothing but the tick decides when a job runs."""

    def __init__(self, app: Any, box: Sandbox) -> None:
        self.app, self.box = app, box
        self.said: list[str] = []
        self._do(self._declare(box.store))

    def to(self, moment: datetime, step: timedelta = timedelta(minutes=15)) -> None:
        """Go there in steps, and run what is due at each."""
        clock, end = self.box.clock, micros(moment)
        while clock.wall() < end:
            # In the middle of the step before: the jitter of what has fired is over.
            clock.advance(60)
            self.box.drain()
            clock.advance_to(clock.wall() - clock.wall() % micros(step) + micros(step))
            self.fire()
        clock.advance(60)
        self.box.drain()

    def fire(self) -> None:
        self._do(self._firer.fire(self._term))
        assert self.said == []
        self.box.drain()

    def _do(self, work: Any) -> Any:
        return self.app.run(work, what="the schedules")

    async def _declare(self, store: FullStore) -> None:
        acts = capabilities(store).leader_acts
        assert acts is not None
        session = await store.open_session(SessionInfo(host="test", ttl=micros(timedelta(days=1000))))
        await store.register(self.app.describe())
        assert await store.declare(self.app.declared(), session=session.number)
        term = (await store.campaign(session.number)).term
        self._term, self._firer = term, Firer(store, acts, self.box.clock, warn=self.said.append)


def micros(moment: datetime | timedelta) -> int:
    seconds = moment.timestamp() if isinstance(moment, datetime) else moment.total_seconds()
    return round(seconds * SECOND)


def at(*parts: int) -> datetime:
    """A time in Prague."""
    return datetime(*parts, tzinfo=ZONE)  # type: ignore[arg-type, misc]


@pytest.fixture
def days(example: Example) -> Iterator[Days]:
    """From the eve of the day on which the clocks of Prague go back."""
    clock = FakeClock(micros(at(2026, 10, 24, 23, 50)))
    with sandbox(example.scheduled, clock=clock) as box, sandbox(example.events, clock=clock):
        example.core.clock = lambda: clock.wall() / SECOND
        yield Days(example.scheduled, box)


def ticks(example: Example, task: str) -> list[datetime]:
    rows = example.core.all("SELECT scheduled_for, times FROM runs WHERE task = ?", task)
    assert {row["times"] for row in rows} <= {1}
    return sorted(datetime.fromisoformat(row["scheduled_for"]) for row in rows)


def test_the_snippets_of_the_document_run_as_written(tmp_path: Path) -> None:
    (tmp_path / "snippets.py").write_text(SNIPPETS + USE)
    done = python("snippets.py", cwd=tmp_path, own={"APP_CORE_DB": str(tmp_path / "core.db")})
    assert "all of it works" in done.stdout, done.stderr
    assert (tmp_path / "worker.log").exists()


def test_daily_cleanup_runs_once_per_day_also_when_the_clock_changes(example: Example, days: Days) -> None:
    example.core.add_session("ada", expires_in=86_400 * 1.5)
    example.core.add_conversation("ada", "talk", age=29 * 86_400)
    days.to(at(2026, 10, 28))
    midnights = [at(2026, 10, day) for day in (25, 26, 27, 28)]
    assert ticks(example, "daily_cleanup") == midnights
    assert midnights[1].timestamp() - midnights[0].timestamp() == 25 * 3600
    rows = example.core.all("SELECT details FROM runs WHERE task = 'daily_cleanup' ORDER BY scheduled_for")
    done = [row["details"] for row in rows]
    assert done == [
        '{"sessions": 0, "conversations": 0}',
        '{"sessions": 0, "conversations": 1}',
        '{"sessions": 1, "conversations": 0}',
        '{"sessions": 0, "conversations": 0}',
    ]


def test_daily_cleanup_when_the_clock_goes_forward(example: Example) -> None:
    clock = FakeClock(micros(at(2026, 3, 28, 12)))
    with sandbox(example.scheduled, clock=clock) as box, sandbox(example.events, clock=clock):
        Days(example.scheduled, box).to(at(2026, 3, 31))
    found = ticks(example, "daily_cleanup")
    assert found == [at(2026, 3, day) for day in (29, 30, 31)]
    assert found[1] - found[0] == timedelta(hours=23)


def test_custom_task_runs_96_times_a_day(example: Example, days: Days) -> None:
    days.to(datetime(2026, 10, 27, tzinfo=UTC))
    found = Counter(tick.date() for tick in ticks(example, "custom_task"))
    assert found[datetime(2026, 10, 25, tzinfo=UTC).date()] == 96
    assert found[datetime(2026, 10, 26, tzinfo=UTC).date()] == 96


def test_a_run_that_failed_leaves_its_share_to_the_next_one(
    example: Example, days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, clock = example.core, days.box.clock
    days.to(at(2026, 10, 25, 0, 15))
    core.add_conversation("ada", "during the failure")

    def broken(*_: object) -> int:
        raise sqlite3.OperationalError("the index is broken")

    with monkeypatch.context() as patch:
        patch.setattr(type(core), "index_conversations", broken)
        days.to(at(2026, 10, 25, 0, 30))
        # Its retries, with pauses of 5, 10 and 20 minutes; meanwhile its ticks are skipped.
        for _ in range(5):
            clock.advance("10m")
            days.box.drain()
        assert [task.state for task in days.box.tasks("task:custom_task", state="failed")] == ["failed"]
        assert core.all("SELECT * FROM search_index") == []
    days.to(at(2026, 10, 25, 2, 0))
    assert [row["title"] for row in core.all("SELECT title FROM search_index")] == ["during the failure"]


def test_what_was_missed_while_no_manager_ran_is_made_up_for_once(example: Example, days: Days) -> None:
    days.to(at(2026, 10, 25, 0, 15))
    days.box.clock.advance(timedelta(days=3, hours=2))
    days.fire()
    days.to(at(2026, 10, 28, 2))
    assert ticks(example, "daily_cleanup") == [at(2026, 10, 25), at(2026, 10, 28)]


def test_signup_makes_a_workspace_once(example: Example) -> None:
    with sandbox(example.events) as box:
        for _ in range(2):
            example.events.publish("user.signup", {"user_id": "ada", "email": "ada@example.org"})
        box.drain()
    assert len(example.core.all("SELECT * FROM workspaces")) == 1
    assert {row["name"] for row in example.core.all("SELECT * FROM folders")} == {"inbox", "notes", "files"}


def test_a_notice_that_cannot_be_delivered_falls_back_to_the_inbox(example: Example) -> None:
    """Nothing listens at the webhook's address."""
    with sandbox(example.events) as box:
        example.events.publish("user.notice", {"user_id": "ada", "text": "hello"})
        box.drain_all()
        (failed,) = box.tasks(state="failed")
        assert (failed.handler, failed.attempts) == ("send_notice", 3)
    (notice,) = example.core.all("SELECT * FROM notices")
    assert (notice["user_id"], notice["channel"]) == ("ada", "inbox")


def test_an_action_that_is_unknown_goes_to_the_dead_letter_handler_at_once(example: Example) -> None:
    with sandbox(example.events) as box:
        example.events.publish("custom.event", {"action": "edited"})
        example.events.publish("custom.event", {"action": "exploded"})
        box.drain_all()
        (failed,) = box.tasks(state="failed")
    assert failed.attempts == 1
    (incident,) = example.core.all("SELECT * FROM incidents")
    assert (incident["task_id"], incident["queue"]) == (failed.id, "high_priority")
    assert "'exploded' is unknown" in incident["error"]
    assert len(example.core.all("SELECT * FROM activity")) == 1


def test_messages_of_one_user_are_handled_in_order(example: Example) -> None:
    with sandbox(example.events) as box:
        for number in range(5):
            for user in ("ada", "bob"):
                example.events.publish("user.message", {"user_id": user, "text": str(number)}, key=user)
        assert len(box.tasks(state="held")) == 8, "all but the first of each"
        box.drain()
    rows = example.core.all("SELECT user_id, text FROM messages ORDER BY number")
    assert [row["text"] for row in rows if row["user_id"] == "ada"] == list("01234")
    assert len(rows) == 10


def test_a_signup_and_its_event_are_one_transaction(example: Example, tmp_path: Path) -> None:
    store = tmp_path / "queue.db"
    example.core.use(store)
    example.events.use(f"sqlite:///{store}")
    assert example.publishing.shares_a_database()
    user = example.publishing.sign_up("ada@example.org")
    with pytest.raises(sqlite3.IntegrityError):
        example.publishing.sign_up("ada@example.org")
    data = {"user_id": "bob", "email": "bob@example.org"}
    with suppress(ZeroDivisionError), example.core.transaction() as connection:
        example.core.add_user(connection, data["email"])
        assert example.events.publish("user.signup", data, within=connection).handlers == ("handle_signup",)
        raise ZeroDivisionError
    assert [row["id"] for row in example.core.all("SELECT id FROM users")] == [user]
    tasks = example.core.all("SELECT handler, params FROM pitboss_tasks WHERE handler = 'handle_signup'")
    assert len(tasks) == 1
    assert user in tasks[0]["params"]


def test_a_signup_that_was_stored_but_not_published_is_published_later(example: Example, days: Days) -> None:
    """The app core and the queue are two databases, and the process ended between the two."""
    with example.core.transaction() as connection:
        user = example.core.add_user(connection, "ada@example.org")
    days.to(at(2026, 10, 25, 1))
    published = example.events.ask(lambda client: client.store.events(), limit=15, what="reading the events")
    assert [(event.name, user in event.data) for event in published] == [("user.signup", True)]


@pytest.mark.parametrize("app", ["scheduled", "events"])
def test_a_queue_type_that_is_not_supported_is_refused(app: str) -> None:
    done = python("-m", f"workers.{app}", own={"WORKER_QUEUE_TYPE": "redis"})
    assert done.returncode == 1
    assert "WORKER_QUEUE_TYPE=redis is not supported: use sqlite or postgres" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_queue_can_be_in_postgres(tmp_path: Path, postgres_dsn: str) -> None:
    """The app core stays in its own file, so the event is published after the commit."""
    own = {"WORKER_QUEUE_TYPE": "postgres", "WORKER_QUEUE_URL": postgres_dsn, "WORKER_CONCURRENCY": "2"}
    own |= {"APP_CORE_DB": str(tmp_path / "core.db"), "PITBOSS_LOGS": str(tmp_path / "logs")}
    signing_up = "from workers.events.utils.publishing import sign_up; print(sign_up('ada@example.org'))"
    user = python("-c", signing_up, own=own).stdout.strip()
    assert user, "it signs up before any worker has started"
    with (tmp_path / "events.log").open("w") as log:
        command = [sys.executable, "-m", "workers.events", "--no-http"]
        process = subprocess.Popen(command, cwd=EXAMPLE, env=environment(**own), stdout=log, stderr=log)
    try:
        until(lambda: rows(tmp_path / "core.db", "SELECT user_id FROM workspaces") == [(user,)])
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0, (tmp_path / "events.log").read_text()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_settings_of_the_document(example: Example) -> None:
    load = example.settings.Settings.load
    told = {"WORKER_QUEUE_TYPE": "postgres", "WORKER_CONCURRENCY": "5", "WORKER_LOG_LEVEL": "debug"}
    assert load(told).variables() == {
        "PITBOSS_STORE": "postgresql:///agent",
        "PITBOSS_LOG_LEVEL": "debug",
        "PITBOSS_WORKERS": "1",
        "PITBOSS_CONCURRENCY": "5",
    }
    for wrong in ({"WORKER_CONCURRENCY": "many"}, {"WORKER_LOG_LEVEL": "loud"}):
        with pytest.raises(example.settings.WrongSetting, match=next(iter(wrong))):
            load(wrong)


def test_worker_config_of_the_document(example: Example) -> None:
    """pitboss.yaml is in the example's folder, which is the current one here."""
    handler = example.events.handlers["handle_signup"]
    assert handler.policy.max_attempts == 4
    assert handler.policy.timeout == 300 * SECOND


def test_the_readme_shows_where_each_best_practice_is() -> None:
    text = (EXAMPLE / "README.md").read_text()
    shown = re.findall(r"`([\w/.]+):(\d+)` +`` ?(.+?) ?``", text)
    assert len(shown) >= 16
    for name, number, code in shown:
        lines = (EXAMPLE / name).read_text().splitlines()
        found = [place for place, line in enumerate(lines, start=1) if code in line]
        assert int(number) in found, f"{name}: {code} is in {found}, not in line {number}"


def test_the_demonstration(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(EXAMPLE / "run"), "--short", "--folder", str(tmp_path)],
        env=environment(PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    passed = re.search(r"(\d+) of (\d+) checks passed", done.stdout)
    assert passed is not None, done.stdout + done.stderr
    assert passed[1] == passed[2], done.stdout
    assert done.returncode == 0
    assert int(passed[2]) >= 14
    check_far_side(tmp_path / "agent.db")


def check_far_side(path: Path) -> None:
    """Counted here, not by the demonstration's own checks."""
    tables = ("users", "workspaces", "messages", "notices", "incidents")
    counts = {table: rows(path, f"SELECT count(*) FROM {table}")[0][0] for table in tables}
    assert counts == {"users": 10, "workspaces": 10, "messages": 40, "notices": 3, "incidents": 1}
    texts = defaultdict(list)
    for user, text in rows(path, "SELECT user_id, text FROM messages ORDER BY number"):
        texts[user].append(text)
    assert list(texts.values()) == [[f"message {number}" for number in range(8)]] * 5
