"""Schedules, events and queues as code declares them. Nothing is stored here; `test_publishing` and others do that."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from pitboss import App, Context, InvalidInput, Lease, backoff, ctx
from pitboss.model.duration import SECOND
from pitboss.model.event import Subscription
from pitboss.model.limits import Window
from pitboss.model.partition import Partitioning
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import QueueSettings
from pitboss.model.retention import FOREVER
from pitboss.model.schedule import Catchup, Overlap, ScheduleSpec
from pitboss.model.states import State
from pitboss.worker.describe import described


class Signup(pydantic.BaseModel):
    user_id: int


@pytest.fixture
def app() -> App:
    return App("memory://", name="shop")


def policy_of(app: App, name: str) -> Policy:
    (info,) = [one for one in app.describe() if one.name == name]
    return msgspec.json.decode(info.policy, type=Policy)


# The app's name.


def test_an_app_has_the_name_of_its_module() -> None:
    assert App().name == __name__
    assert App(name="shop").name == "shop"
    assert App(name="shop").declared().app == "shop"
    with pytest.raises(InvalidInput, match="cannot name a Pitboss app"):
        App(name="my shop")


@pytest.mark.parametrize(
    ("command", "name"),
    [(["jobs/my shop.py"], "my_shop"), (["-m", "jobs.daily"], "jobs.daily"), (["-m", "jobs"], "jobs")],
)
def test_a_module_that_is_run_as_a_program_has_the_same_name(tmp_path: Path, command: list[str], name: str) -> None:
    (tmp_path / "jobs").mkdir()
    for file in ("__init__.py", "__main__.py", "daily.py", "my shop.py"):
        (tmp_path / "jobs" / file).write_text("from pitboss import App\nprint(App().name)\n")
    (tmp_path / "jobs" / "__init__.py").write_text("")
    ran = subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert ran.stdout.decode().strip() == name


# Schedules.


def test_the_document_s_scheduled_task(app: App) -> None:
    scheduled_task = app.scheduled_task
    cleaned: list[str] = []

    async def cleanup_expired_sessions() -> None:
        cleaned.append("sessions")

    async def archive_old_conversations() -> None:
        cleaned.append("conversations")

    # Example scheduled task
    @scheduled_task(cron="0 0 * * *")  # Run daily at midnight
    async def daily_cleanup():  # type: ignore[no-untyped-def]
        # Clean up old sessions
        await cleanup_expired_sessions()
        # Archive old conversations
        await archive_old_conversations()

    asyncio.run(daily_cleanup())
    assert cleaned == ["sessions", "conversations"]
    assert app.declared().schedules == (ScheduleSpec(name="daily_cleanup", handler="daily_cleanup", cron="0 0 * * *"),)
    assert [info.name for info in app.describe()] == ["daily_cleanup"]


def test_the_document_s_custom_task_with_its_config(app: App) -> None:
    scheduled_task = app.scheduled_task
    task_config = {
        "timeout": 60,
        "priority": 1,
        "retry_delay": 300,
    }

    @scheduled_task(
        name="custom_task",
        cron="*/15 * * * *",  # Run every 15 minutes
        retry_limit=3,
        task_config=task_config,
    )
    async def custom_task():  # type: ignore[no-untyped-def]
        # Task implementation
        pass

    (spec,) = app.declared().schedules
    assert (spec.name, spec.cron, spec.priority) == ("custom_task", "*/15 * * * *", 1)
    policy = policy_of(app, "custom_task")
    assert (policy.max_attempts, policy.timeout) == (4, 60 * SECOND)
    assert policy.backoff == Backoff(base=300 * SECOND, factor=2)


def test_a_schedule_has_all_that_was_said(app: App) -> None:
    @app.scheduled_task(
        "30 3 * * 1",
        tz="Europe/Prague",
        params={"days": 7, "since": datetime(2026, 1, 2, tzinfo=UTC)},
        overlap="queue",
        catchup="all",
        jitter=30,
        queue="nightly",
        priority=5,
        timeout="2m",
        backoff=backoff("1s"),
        max_attempts=2,
    )
    def report(days: int, since: datetime, context: Context = ctx) -> int:
        return days

    assert report(3, datetime.now(UTC)) == 3
    (spec,) = app.declared().schedules
    assert spec == ScheduleSpec(
        name="report",
        handler="report",
        cron="30 3 * * 1",
        tz="Europe/Prague",
        params='{"days":7,"since":"2026-01-02T00:00:00Z"}',
        priority=5,
        overlap=Overlap.QUEUE,
        catchup=Catchup.ALL,
        jitter=30 * SECOND,
    )
    assert report.queue == "nightly"
    assert policy_of(app, "report").timeout == 120 * SECOND


def test_intervals_and_single_times(app: App) -> None:
    @app.scheduled_task(every=90)
    def poll() -> None: ...

    @app.scheduled_task(at=datetime(2027, 1, 1, tzinfo=UTC))
    def once() -> None: ...

    assert [(spec.name, spec.every, spec.at) for spec in app.declared().schedules] == [
        ("once", None, round(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * SECOND),
        ("poll", 90 * SECOND, None),
    ]


def test_keyword_arguments_win_over_the_config(app: App) -> None:
    config = {"timeout": 60, "retry_limit": 1, "retry_delay": "2h", "queue": "slow", "every": "1h"}

    @app.scheduled_task(max_attempts=7, timeout=None, task_config=config)
    def poll() -> None: ...

    assert poll.queue == "slow"
    policy = policy_of(app, "poll")
    assert (policy.max_attempts, policy.timeout) == (7, None)
    assert (policy.backoff.base, policy.backoff.cap) == (7200 * SECOND, 7200 * SECOND)


def test_a_schedule_over_a_task_adds_only_the_schedule(app: App) -> None:
    @app.scheduled_task(cron="0 6 * * *", name="us", params={"region": "us"})
    @app.scheduled_task(cron="0 0 * * *", params={"region": "eu"})
    @app.task(queue="reports", max_attempts=2)
    def report(region: str) -> str:
        return region

    assert report("x") == "x"
    assert [(one.name, one.handler, one.params) for one in app.declared().schedules] == [
        ("report", "report", '{"region":"eu"}'),
        ("us", "report", '{"region":"us"}'),
    ]
    with pytest.raises(InvalidInput, match="cannot get timeout here"):
        app.scheduled_task(every=5, name="third", timeout=5, params={"region": "x"})(report)
    with pytest.raises(InvalidInput, match="of another app"):
        App("memory://").scheduled_task(every=5, params={"region": "x"})(report)


def plain() -> None: ...


def needy(days: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "keys", "said"),
    [
        (plain, {}, "does not say when"),
        (plain, {"cron": "61 * * * *"}, "61"),
        (plain, {"cron": "* * * * *", "every": 5}, "says it twice"),
        (plain, {"every": "0.5s"}, "too often"),
        (plain, {"cron": "* * * * *", "tz": "Mars"}, "is not a time zone"),
        (plain, {"cron": "* * * * *", "overlap": "sometimes"}, "skip, queue, allow"),
        (plain, {"every": 5, "retry_limt": 3}, 'did you mean "retry_limit"'),
        (plain, {"every": 5, "task_config": {"time_out": 3}}, 'did you mean "timeout"'),
        (plain, {"every": 5, "task_config": {"task_config": {}}}, "task_config has no option"),
        (plain, {"every": 5, "task_config": 7}, "task_config is not a dict"),
        (plain, {"every": 5, "retry_limit": -1}, "whole number from 0"),
        (plain, {"every": 5, "retry_limit": 1, "max_attempts": 1}, "are both given"),
        (plain, {"every": 5, "retry_delay": 1, "backoff": 1}, "are both given"),
        (plain, {"every": 5, "tags": "x"}, "no option 'tags'"),
        (plain, {"every": 5, "params": [1]}, "are not arguments by name"),
        (needy, {"every": 5}, "does not say days"),
        (needy, {"every": 5, "params": {"dys": 3}}, "does not say days"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_at_its_declaration(
    app: App, function: Callable[..., None], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.scheduled_task(**keys)(function)
    assert said in str(caught.value)
    assert app.handlers == {}


def test_params_of_another_type_are_refused_when_the_app_is_described(app: App) -> None:
    app.scheduled_task(every=5, params={"days": "many"})(needy)
    with pytest.raises(InvalidInput, match='params of the schedule "needy" do not fit'):
        app.declared()


def test_a_decorator_without_parentheses_says_how_to_write_it(app: App) -> None:
    decorators: list[Any] = [app.scheduled_task, app.event_handler, app.dead_letter_handler]
    for decorator in decorators:
        with pytest.raises(InvalidInput, match="write @app"):
            decorator(plain)


# Events.


def test_the_document_s_event_handlers(app: App) -> None:
    event_handler = app.event_handler
    made: list[int] = []

    async def initialize_user_workspace(user_id: int) -> None:
        made.append(user_id)

    # Example event handler
    @event_handler("user.signup")
    async def handle_signup(event_data):  # type: ignore[no-untyped-def]
        # Process user signup
        user_id = event_data["user_id"]
        # Initialize user resources
        await initialize_user_workspace(user_id)

    event_config = {
        "queue": "high_priority",
        "max_retries": 3,
        "timeout": 30,
    }

    @event_handler("custom.event", event_config=event_config)
    async def handle_custom_event(event_data):  # type: ignore[no-untyped-def]
        # Handler implementation
        pass

    asyncio.run(handle_signup({"user_id": 7}))
    assert made == [7]
    assert app.declared().subscriptions == (
        Subscription(handler="handle_custom_event", pattern="custom.event", queue="high_priority"),
        Subscription(handler="handle_signup", pattern="user.signup"),
    )
    policy = policy_of(app, "handle_custom_event")
    assert (policy.max_attempts, policy.timeout) == (4, 30 * SECOND)


def test_a_subscription_has_all_that_was_said(app: App) -> None:
    proxies = app.resources("proxies", per_hour=5)

    @app.worker_state()
    async def browser() -> Any:
        yield 1

    @app.event_handler("user.*", "order.**", "user.*", ordered=True, priority=3, name="audit", queue="q")
    async def write(
        signup: Signup, context: Context, page: int = browser(), proxy: Lease = proxies.lease(labels=["eu"])
    ) -> None: ...

    one, two = app.declared().subscriptions
    assert (one.handler, one.pattern, one.parameter, one.queue) == ("audit", "order.**", "signup", "q")
    assert (two.pattern, two.ordered, two.priority) == ("user.*", True, 3)
    assert one.template is not None
    assert one.template.labels == ("eu",)


def test_one_function_can_be_task_schedule_and_event_handler(app: App) -> None:
    @app.event_handler("cache.stale")
    @app.scheduled_task(every="1h", params={"which": "all"})
    @app.task
    def refresh(which: str) -> None: ...

    declared = app.declared()
    assert [one.handler for one in declared.schedules] == ["refresh"]
    assert [one.handler for one in declared.subscriptions] == ["refresh"]


@pytest.mark.parametrize(
    ("patterns", "keys", "said"),
    [
        ((), {}, "has no event"),
        (("user signup",), {}, "not a name or pattern"),
        (("user.**.x",), {}, "not a name or pattern"),
        (("a",), {"event_config": {"max_retry": 1}}, 'did you mean "max_retries"'),
        (("a",), {"retry_limit": 1}, "no option 'retry_limit'"),
        (("a",), {"max_retries": "3"}, "whole number"),
    ],
)
def test_a_subscription_that_cannot_work_is_refused(
    app: App, patterns: tuple[str, ...], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.event_handler(*patterns, **keys)(needy)
    assert said in str(caught.value)


def none() -> None: ...


def two(data: Any, more: Any = None) -> None: ...


def many(*data: Any) -> None: ...


def by_place(data: Any, /) -> None: ...


@pytest.mark.parametrize("function", [none, two, many, by_place])
def test_data_needs_one_parameter(app: App, function: Callable[..., None]) -> None:
    for decorator in (app.event_handler("a"), app.dead_letter_handler("q")):
        with pytest.raises(InvalidInput, match="the only parameter"):
            decorator(function)


def test_an_event_s_type_is_declared_as_its_schema(app: App) -> None:
    app.event("user.signup", Signup)
    app.event("list.made", list[int])
    made, signup = app.declared().events
    assert (made.name, json.loads(made.schema)) == ("list.made", {"type": "array", "items": {"type": "integer"}})
    assert json.loads(signup.schema)["required"] == ["user_id"]
    with pytest.raises(InvalidInput, match="two events named"):
        app.event("user.signup", Signup)
    app.event("bad", App)
    with pytest.raises(InvalidInput, match='data of the event "bad"'):
        app.declared()


# Queues.


def test_queues_have_limits(app: App) -> None:
    app.queue("mail", capacity=1000, rate="10/s, 100/min", retention={"completed": "1d", "failed": "forever"})
    app.queue("log", retention="1d")
    day = 86_400 * SECOND
    assert app.declared().queues == {
        "log": QueueSettings(retention={State.COMPLETED: day, State.FAILED: day, State.CANCELLED: day}),
        "mail": QueueSettings(
            capacity=1000,
            rate=(Window(10, SECOND), Window(100, 60 * SECOND)),
            retention={State.COMPLETED: day, State.FAILED: FOREVER},
        ),
    }


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"capacity": 0}, "whole number from 1"),
        ({"rate": "many"}, "is not a rate"),
        ({"retention": "long"}, "is not a duration"),
        ({"retention": {"pending": "1d"}}, "does not know pending"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(app: App, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        app.queue("mail", **keys)
    app.queue("mail")
    with pytest.raises(InvalidInput, match="two queues named"):
        app.queue("mail")


# Partitions.


def test_a_queue_can_divide_its_tasks(app: App) -> None:
    app.queue("mail", partition_by="{shop}", max_per_key=5)
    app.queue("jobs", partition_by="{country}/{city}", mode="balanced")
    app.queue(
        "targets",
        partition_by="{state}",
        mode="static",
        partitions={0: ["CA", "MT"], 1: ["TX"]},
        keys=["CA", "MT", "TX"],
        weights={"CA": 2},
        on_missing="reassign",
        pool="scrapers",
    )
    app.queue("short", partition_by="{state}", partitions={0: ["CA"]})
    assert app.declared().queues == {
        "mail": QueueSettings(partitions=Partitioning(by="{shop}"), max_per_key=5),
        "jobs": QueueSettings(partitions=Partitioning(by="{country}/{city}", mode="balanced")),
        "targets": QueueSettings(
            partitions=Partitioning(
                by="{state}",
                mode="static",
                table={0: ("CA", "MT"), 1: ("TX",)},
                keys=("CA", "MT", "TX"),
                weights={"CA": 2.0},
                on_missing="reassign",
                pool="scrapers",
            )
        ),
        "short": QueueSettings(partitions=Partitioning(by="{state}", mode="static", table={0: ("CA",)})),
    }


STATES = {"partition_by": "{state}"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"partition_by": "{state"}, "is not a partition key"),
        ({"partition_by": "{state!r}"}, "is not a partition key"),
        ({"partition_by": "state"}, "is not a partition key"),
        ({"partition_by": 3}, "is not a partition key"),
        ({"mode": "balanced"}, "has mode, but no partition_by"),
        ({"max_per_key": 3}, "has max_per_key, but no partition_by"),
        (STATES | {"max_per_key": 0}, "cannot be max_per_key"),
        (STATES | {"mode": "statc"}, 'write "static"'),
        (STATES | {"mode": "static"}, "the table is empty"),
        (STATES | {"mode": "balanced", "partitions": {0: ["CA"]}}, "has mode 'balanced' and partitions"),
        (STATES | {"on_missing": "steal"}, "has mode 'affinity' and on_missing"),
        (STATES | {"partitions": {0: ["CA"]}, "on_missing": "wait"}, "on_missing cannot be 'wait'"),
        (STATES | {"partitions": ["CA"]}, "is not a table"),
        (STATES | {"partitions": {"a": ["CA"]}}, "is not the number of a slot"),
        (STATES | {"partitions": {0: [None]}}, "is not a list of keys"),
        (STATES | {"partitons": {0: ["CA"]}}, 'did you mean "partitions"'),
        (STATES | {"partitions": {0: ["CA"]}, "weights": {"CA": "x"}}, "is not a weight"),
    ],
)
def test_partitions_that_cannot_be_used_are_refused(app: App, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.queue("targets", **keys)
    assert said in str(caught.value)
    assert caught.value.why
    assert caught.value.fix


def test_the_error_of_a_table_has_all_that_is_wrong_with_it(app: App) -> None:
    table = {0: ["CA", "CA"], 2: ["CA", "ZZ", " "], 3: []}
    with pytest.raises(InvalidInput, match='the partitions of queue "t" are not valid') as caught:
        app.queue("t", partition_by="{state}", partitions=table, keys=["CA", "TX"], weights={"QQ": 1, "CA": -1})
    assert caught.value.why == (
        "keys in two slots: CA (slots 0, 2); keys twice in one slot: CA (slot 0); missing keys: TX; "
        "unknown keys: ZZ,  ; slots without keys: 3; slots that are left out: 1; empty keys in slots: 2; "
        "weights of unknown keys: QQ; weights that are not above 0: CA"
    )


def test_the_handlers_of_the_queue_must_have_the_parameters_of_its_key(app: App) -> None:
    app.queue("targets", partition_by="{state}/{city}")

    @app.task(queue="targets")
    def crawl(state: str, town: str) -> None: ...

    with pytest.raises(InvalidInput, match='task "crawl" has no parameter city') as caught:
        app.describe()
    assert "its tasks by '{state}/{city}'; the parameters of crawl are state, town" in caught.value.why


def test_any_parameters_are_enough_for_a_key(app: App) -> None:
    app.queue("targets", partition_by="{state}")

    @app.task(queue="targets")
    def anything(**params: Any) -> None: ...

    @app.task(queue="other")
    def elsewhere() -> None: ...

    @app.task(queue="targets")
    def crawl(state: str, page: int = 1, context: Context = ctx) -> None: ...

    assert len(app.describe()) == 3


# How long a task usually takes.


def test_a_handler_says_how_long_it_usually_takes(app: App) -> None:
    @app.task(usual="12s")
    def crawl() -> None: ...

    @app.task(fallback="crawl")
    def plain() -> None: ...

    @app.scheduled_task(every=5, usual=3)
    def poll() -> None: ...

    assert [one.usual for one in app.describe()] == [12 * SECOND, None, 3 * SECOND]
    for wrong in (0, "soon", -1):
        with pytest.raises(InvalidInput, match="usual"):
            app.task(usual=wrong)


# Defaults, and what a manager is told.


def test_what_a_handler_does_not_say_is_said_by_the_settings(
    app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pitboss.toml").write_text('[defaults]\nmax_attempts = 9\ntimeout = "5m"\nbackoff = "2h"\n')
    monkeypatch.chdir(tmp_path)

    @app.task
    def silent() -> None: ...

    @app.scheduled_task(every=5, timeout=None, retry_limit=0, backoff="3s")
    def outspoken() -> None: ...

    policy = policy_of(app, "silent")
    assert (policy.max_attempts, policy.timeout, policy.backoff.base) == (9, 300 * SECOND, 7200 * SECOND)
    assert silent.policy == policy, "a worker keeps the same time limit"
    policy = policy_of(app, "outspoken")
    assert (policy.max_attempts, policy.timeout, policy.backoff.base) == (1, None, 3 * SECOND)


def test_without_settings_the_policy_is_as_ever(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    app.task(plain)
    assert policy_of(app, "plain") == Policy()


def test_the_description_of_an_app_has_its_declarations(tmp_path: Path) -> None:
    (tmp_path / "only_jobs.py").write_text(
        "from pitboss import App\n"
        "app = App()\n"
        "app.queue('mail', capacity=5)\n"
        "@app.scheduled_task(every='1h')\n"
        "def poll(): ...\n"
        "@app.event_handler('user.signup')\n"
        "def greet(data): ...\n"
    )
    description = described(str(tmp_path / "only_jobs.py"))
    assert description.error is None
    assert [one.name for one in description.handlers] == ["poll", "greet"]
    declared = description.declared
    assert declared.app == "only_jobs"
    assert (list(declared.queues), len(declared.schedules), len(declared.subscriptions)) == (["mail"], 1, 1)
    assert msgspec.json.decode(msgspec.json.encode(description), type=type(description)) == description


def test_what_is_declared_does_not_depend_on_the_order() -> None:
    def declare(order: int) -> App:
        app = App(name="shop")
        acts: list[Callable[[], object]] = [
            lambda: app.queue("a"),
            lambda: app.queue("b"),
            lambda: app.scheduled_task(every=5, name="x")(plain),
            lambda: app.event_handler("e", name="y")(needy),
            lambda: app.event_handler("f", name="z")(needy),
        ]
        for act in acts[::order]:
            act()
        return app

    assert declare(1).declared().fingerprint == declare(-1).declared().fingerprint


# A decorator that hides the function's signature.


def with_retry(max_retries: int = 3, backoff_factor: int = 2) -> Callable[..., Any]:
    """As in the document."""

    def decorator(func: Any) -> Any:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            retry_count = 0
            while retry_count < max_retries:
                try:
                    return await func(*args, **kwargs)
                except Exception:
                    retry_count += 1
                    if retry_count == max_retries:
                        raise
                    await asyncio.sleep(0)
            return None

        return wrapper

    return decorator


def test_the_document_s_retry_decorator_can_stand_below(app: App) -> None:
    @app.scheduled_task(every="1h", name="clean")
    @with_retry()
    async def clean() -> int:
        return 1

    @app.event_handler("user.signup", name="greet")
    @with_retry()
    async def greet(event_data: Any) -> Any:
        return event_data

    declared = app.declared()
    assert declared.schedules[0].params == "{}"
    assert declared.subscriptions[0].parameter == "event_data"
    assert asyncio.run(clean()) == 1
    assert greet.prepared(event_data=5).params == '{"event_data":5}'
    with pytest.raises(InvalidInput, match="does not name its parameters"):
        greet.prepared(5)
