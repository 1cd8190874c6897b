"""`pitboss schedules`: list, show, add, change, run, pause, resume, reset, remove and next."""

from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.declared import Declared
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.session import SessionInfo
from tests.cli.command_line import GREET, Answer, new, pitboss, put, run_all, with_store

PARAMS = '{"name": "you"}'
NIGHTLY = ScheduleSpec(name="nightly", handler="greet", cron="0 3 * * *", tz="Europe/Prague", params='{"name":"you"}')


@pytest.fixture(autouse=True)
def declared() -> None:
    async def work(store: Any) -> None:
        await store.register([GREET])
        await store.declare(Declared(app="shop", schedules=(NIGHTLY,)))

    with_store(work)


def schedules(*args: str) -> Answer:
    return pitboss("schedules", *args)


def done(*args: str) -> Answer:
    answer = schedules(*args)
    assert answer.code == 0, answer.err
    return answer


def shown(name: str) -> dict[str, Any]:
    found: dict[str, Any] = done("show", name, "--json").json()["schedule"]
    return found


def test_the_list_says_when_in_words_and_where_it_comes_from() -> None:
    done("add", "poll", "greet", "--every", "10m", "--params", PARAMS)
    titles, *rows = done("list").out.splitlines()
    words = "SCHEDULE STATE WHEN NEXT LAST RUN LAST SUCCESS TASK FROM PAUSED BY CHANGED BY"
    assert titles.split() == words.split()
    assert "every day at 03:00 (Europe/Prague)" in rows[0]
    assert "shop" in rows[0]
    assert "every 10m" in rows[1]
    assert "(in 9m5" in rows[1]
    assert "added at run time" in rows[1]
    document = done("list", "--json").json()["schedules"]
    assert [(one["name"], one["app"]) for one in document] == [("nightly", "shop"), ("poll", None)]


def test_a_schedule_takes_every_option() -> None:
    options = ["--queue", "mail", "--priority", "-3", "--timeout", "2m", "--max-attempts", "4"]
    options += ["--overlap", "queue", "--catchup", "all", "--jitter", "30s", "--tz", "Europe/Prague"]
    answer = done("add", "often", "greet", "--cron", "*/15 * * * *", "--params", PARAMS, *options)
    assert answer.err.startswith('schedule "often" is added: every 15 minutes; next ')
    found = shown("often")
    assert found | {
        "cron": "*/15 * * * *", "tz": "Europe/Prague", "queue": "mail", "priority": -3, "timeout": 120.0,
        "max_attempts": 4, "overlap": "queue", "catchup": "all", "jitter": 30.0, "params": {"name": "you"},
    } == found  # fmt: skip
    again = done("add", "often", "greet", "--every", "1h", "--params", PARAMS)
    assert "is defined anew: every 1h" in again.err
    (newest, first) = pitboss("audit", "--json").json()["entries"]
    assert (newest["act"], newest["target"]) == ("schedules add", "often greet")
    assert first["details"]["timeout"] == "2m"


def test_changes_are_shown_with_what_is_declared_until_they_are_reset() -> None:
    done("change", "nightly", "--cron", "30 4 * * *", "--priority", "5")
    page = done("show", "nightly").out
    assert f"changed      by {operator()}: cron 30 4 * * * (declared: 0 3 * * *); priority 5 (declared: 0)" in page
    assert "from         the code of shop" in page
    assert "ticks        0 fired, 0 skipped, 0 missed" in page
    assert page.count("04:30" if "CET" in page else "03:30") >= 1
    assert len(page.split("Next ticks\n")[1].splitlines()) == 5
    assert operator() in done("list").out
    assert "is as it is declared: every day at 03:00 (Europe/Prague)" in done("reset", "nightly").err
    assert shown("nightly")["changed"] == {}


def test_pause_and_resume_name_who_did_it() -> None:
    assert done("pause", "nightly").err == 'schedule "nightly" is paused\n'
    found = shown("nightly")
    assert (found["paused"], found["paused_by"]) == (True, operator())
    assert done("list").out.splitlines()[1].split()[1] == "paused"
    assert "is resumed" in done("resume", "nightly").err
    assert shown("nightly")["paused"] is False


def test_run_puts_its_task_now() -> None:
    task = done("run", "nightly").out.strip()
    document = pitboss("tasks", "show", task, "--json").json()["task"]
    assert (document["params"], document["origin"]["schedule"]["name"]) == ({"name": "you"}, "nightly")
    assert "from         schedule nightly put it for 20" in pitboss("tasks", "show", task).out
    assert "from         schedule nightly put it for 20" in pitboss("why", task).out
    again = done("run", "nightly")
    assert (again.out.strip(), "is not finished" in again.err) == (task, True)
    run_all()
    late = schedules("run", "nightly", "--wait", "--timeout", "10ms")
    assert (late.code, "no manager is running" in late.err) == (Exit.TIMEOUT, True)
    assert [one["act"] for one in pitboss("audit", "--json").json()["entries"]] == ["schedules run"] * 3


def test_next_merges_all_and_reads_lines_that_are_not_stored() -> None:
    done("add", "poll", "greet", "--every", "1h", "--params", PARAMS)
    both = done("next", "-n", "30").out.splitlines()
    assert len(both) == 31
    assert {line.split()[-1] for line in both[1:]} == {"poll", "nightly"}
    one = done("next", "nightly", "-n", "3", "--json").json()
    assert (len(one["ticks"]), one["when"]) == (3, "every day at 03:00 (Europe/Prague)")
    tried = done("next", "--cron", "30 6 * * 1-5", "--tz", "Europe/Prague", "-n", "2")
    assert tried.err == "at 06:30 on Monday to Friday (Europe/Prague)\n"
    assert len(tried.out.splitlines()) == 3


def test_a_line_can_be_tried_without_a_store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert done("next", "--every", "90s", "-n", "2").err == "every 1m30s\n"
    assert list((tmp_path / "empty").iterdir()) == []


def test_one_that_was_added_can_be_removed() -> None:
    done("add", "poll", "greet", "--every", "1h", "--params", PARAMS)
    assert schedules("remove", "poll").code == Exit.REFUSED
    assert done("remove", "poll", "--yes").err == 'schedule "poll" is removed\n'
    assert [one["name"] for one in done("list", "--json").json()["schedules"]] == ["nightly"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["add", "bad", "greet", "--cron", "0 25 * * *", "--params", PARAMS], Exit.USAGE, "hour 25"),
        (["add", "bad", "greet", "--params", PARAMS], Exit.USAGE, "does not say when"),
        (["add", "bad", "greet", "--every", "1h"], Exit.USAGE, "name"),
        (["add", "bad", "greet", "--every", "1h", "--params", "{"], Exit.USAGE, "not JSON"),
        (["add", "bad", "gret", "--every", "1h"], Exit.NOT_FOUND, 'did you mean "greet"?'),
        (["add", "bad", "greet", "--every", "1h", "--overlap", "some", "--params", PARAMS], Exit.USAGE, "overlap"),
        (["add", "bad", "greet", "--at", "tomorrow", "--params", PARAMS], Exit.USAGE, "not a moment"),
        (["add", "nightly", "greet", "--every", "1h", "--params", PARAMS], Exit.USAGE, "declared by the code"),
        (["change", "nightly"], Exit.USAGE, "no change was given"),
        (["change", "nightlt", "--every", "1h"], Exit.NOT_FOUND, 'did you mean "nightly"?'),
        (["pause", "nightly", "other"], Exit.NOT_FOUND, 'no schedule "other"'),
        (["remove", "nightly", "--yes"], Exit.USAGE, "declared by the code"),
        (["run", "other"], Exit.NOT_FOUND, 'no schedule "other"'),
        (["run", "nightly", "--timeout", "soon"], Exit.USAGE, "--timeout"),
        (["next", "nightly", "--cron", "0 3 * * *"], Exit.USAGE, "a schedule and a line"),
        (["next", "--tz", "UTC"], Exit.USAGE, "--tz alone"),
    ],
)
def test_what_cannot_be_done_is_refused_and_not_recorded(args: list[str], code: Exit, said: str) -> None:
    answer = schedules(*args)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert [one["name"] for one in done("list", "--json").json()["schedules"]] == ["nightly"]
    assert shown("nightly")["paused"] is False
    assert pitboss("audit", "--json").json()["entries"] == []


def test_a_store_without_schedules_says_how_to_add_one() -> None:
    async def withdraw(store: Any) -> None:
        await store.declare(Declared(app="shop"), session=(await _session(store)))

    with_store(withdraw)
    assert "@app.scheduled_task" in done("list").err


async def _session(store: Any) -> int:
    return int((await store.open_session(SessionInfo(host="here"))).number)


def test_status_counts_them_and_warns_of_a_queue_beyond_its_capacity() -> None:
    put(new(queue="mail"), new(queue="mail"))
    pitboss("queues", "limit", "mail", "--capacity", "1")
    answer = pitboss("status")
    assert "1 schedule; next nightly in " in answer.out
    assert 'warning: queue "mail" holds more than its capacity: 2 of 1 tasks wait in it' in answer.err
    document = pitboss("status", "--json").json()["schedules"]
    assert (document["total"], document["next"], document["overdue"]) == (1, "nightly", [])
