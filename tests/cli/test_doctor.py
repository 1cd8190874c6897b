"""`pitboss doctor`: every problem is found, with a fix; a healthy store has none."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pitboss.cli import doctor
from pitboss.cli.errors import Exit
from pitboss.engines.sqlite import diagnosis
from pitboss.model.queue import QueueChange
from pitboss.model.snapshot import WorkerState
from tests.cli.command_line import Answer, new, pitboss, put, with_store
from tests.cli.fake_managers import crashed, manager, pool, snapshot, worker

APP = "from pitboss import App\napp = App({store})\n\n@app.task\ndef greet(name: str) -> str:\n    return name\n"


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the tests run, the temporary folder counts as a disk with room."""
    monkeypatch.setattr(diagnosis, "file_system", lambda _: "ext4")
    usage = type("Usage", (), {"free": 500 * 1024**3, "total": 1000 * 1024**3})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)


def found(answer: Answer, check: str, grade: str | None = None) -> list[dict[str, Any]]:
    """The findings of one check, each complete."""
    checks = [one for one in answer.json()["checks"] if one["check"] == check]
    for one in checks:
        assert one["what"]
        assert bool(one["fix"]) == bool(one["why"]) == (one["grade"] != "ok")
    return [one for one in checks if grade in (None, one["grade"])]


def test_a_healthy_store_has_no_complaint(folder: Path) -> None:
    (folder / "app.py").write_text(APP.format(store=""))
    (folder / "pitboss.toml").write_text('app = "app.py"\n')
    put(new())
    manager(snapshot(worker(), version=""))
    answer = pitboss("doctor", "--json")
    assert answer.code == 0
    document = answer.json()
    assert (document["problems"], document["warnings"]) == (0, 0)
    names = [one["check"] for one in document["checks"]]
    assert names == [
        "settings",
        "app",
        "files",
        "memory",
        "store",
        "schema",
        "durability",
        "file-system",
        "disk",
        "journal",
        "clock",
        "managers",
        "workers",
        "queues",
        "handlers",
        "content",
    ]


def test_the_page_for_a_person_ends_with_a_sum() -> None:
    put(new())
    answer = pitboss("doctor")
    assert answer.code == Exit.UNHEALTHY
    lines = answer.out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("problem"))
    assert lines[at].split(maxsplit=2)[1:] == ["managers", "no manager is running; 1 task waits"]
    assert lines[at + 1].strip().startswith("why:")
    assert lines[at + 2].strip() == "fix: pitboss up"
    assert lines[-1].endswith("1 problem, 0 warnings")


@pytest.mark.parametrize(
    ("settings", "said"),
    [('workers = "many"', "workers = 'many' cannot be used"), ("colour = 1", 'no setting "colour"')],
)
def test_settings_that_cannot_be_used(folder: Path, settings: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(settings)
    answer = pitboss("doctor", "--json")
    assert answer.code == Exit.UNHEALTHY
    assert said in found(answer, "settings", "problem")[0]["what"]


def test_a_variable_that_is_no_setting() -> None:
    put(new())
    answer = pitboss("doctor", "--json", env={"PITBOSS_WORKRES": "3"})
    assert "did you mean PITBOSS_WORKERS?" in found(answer, "settings", "warning")[0]["what"]


def test_an_app_that_cannot_be_loaded(folder: Path) -> None:
    put(new())
    (folder / "pitboss.toml").write_text('app = "broken.py"\n')
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    answer = pitboss("doctor", "--json")
    assert "nothing_of_this_name" in found(answer, "app", "problem")[0]["what"]
    assert "ModuleNotFoundError" in pitboss("doctor").out


def test_a_store_that_only_the_code_names(folder: Path) -> None:
    put(new())
    (folder / "app.py").write_text(APP.format(store='"sqlite:///elsewhere.db"'))
    (folder / "pitboss.toml").write_text('app = "app:app"\n')
    (folder / "deep").mkdir()
    answer = pitboss("doctor", "--json")
    assert "elsewhere.db" in found(answer, "app", "warning")[0]["what"]


@pytest.mark.parametrize("url", ["sqlite:///none.db", "postgresql://me:geheim@127.0.0.1:1/x", "foo://x", "memory://"])
def test_a_store_that_cannot_be_reached(url: str, folder: Path) -> None:
    answer = pitboss("doctor", "--json", "--store", url)
    assert answer.code == Exit.UNHEALTHY
    assert found(answer, "store", "problem")
    assert "geheim" not in answer.out + answer.err
    assert list(folder.iterdir()) == []


def test_a_store_that_hangs_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    put(new())
    monkeypatch.setattr(doctor, "_store_checks", hangs)
    monkeypatch.setattr(doctor, "_SECONDS", 0.01)
    assert "did not answer within" in found(pitboss("doctor", "--json"), "store", "problem")[0]["what"]


@pytest.mark.parametrize(("have", "want", "said"), [(0, 2, "no tables"), (1, 2, "older"), (3, 2, "newer")])
def test_a_schema_that_is_not_the_wanted_one(have: int, want: int, said: str) -> None:
    finding = doctor._schema(have, want)
    assert finding.grade == "problem"
    assert said in finding.why


def test_no_manager_is_a_problem_only_if_tasks_wait() -> None:
    pitboss("db", "upgrade")
    answer = pitboss("doctor", "--json")
    assert answer.code == 0
    assert found(answer, "managers", "warning")
    put(new())
    assert found(pitboss("doctor", "--json"), "managers", "problem")


def test_a_manager_that_died_and_one_that_is_late() -> None:
    put(new())
    manager(snapshot(worker()), ttl=1)
    manager(snapshot(worker()), host="box2", pid=2)
    answer = pitboss("doctor", "--json")
    assert "manager 1 on box1 is silent" in found(answer, "managers", "warning")[0]["what"]
    assert answer.code == 0


def test_releases_that_differ() -> None:
    manager(snapshot(worker(), version="0.1.0"))
    manager(snapshot(worker(), version="0.2.0"), host="box2", pid=2)
    assert "1 × 0.1.0, 1 × 0.2.0" in found(pitboss("doctor", "--json"), "releases", "warning")[0]["what"]


def test_a_release_that_is_not_this_one() -> None:
    manager(snapshot(worker(), version="0.0.1"))
    assert "managers run release 0.0.1" in found(pitboss("doctor", "--json"), "releases", "warning")[0]["what"]


def test_a_worker_that_was_given_up() -> None:
    manager(snapshot(worker(), crashed("download-2", "exit code 3")))
    answer = pitboss("doctor", "--json")
    (one,) = found(answer, "workers", "problem")
    assert (one["why"], one["fix"]) == ("exit code 3", "fix the cause, then pitboss pools restart download")
    assert answer.code == Exit.UNHEALTHY


def test_a_worker_that_is_between_two_lives() -> None:
    manager(snapshot(worker(state=WorkerState.RESTARTING, pid=0, why="exit code 3")))
    assert found(pitboss("doctor", "--json"), "workers", "warning")


def test_a_queue_that_no_pool_serves() -> None:
    put(new(queue="mail"), new(queue="other"))
    manager(snapshot(worker(), pools=(pool(wanted=1, queues=("mail", "default")),)))
    answer = pitboss("doctor", "--json")
    (one,) = found(answer, "queues", "problem")
    assert 'no worker pool serves queue "other"; 1 task waits in it' in one["what"]


def test_handlers_that_no_worker_knows() -> None:
    put(new("unknown", "{}"))
    manager(snapshot(worker()))
    (one,) = found(pitboss("doctor", "--json"), "handlers", "problem")
    assert "1 task held: no live worker knows unknown" in one["what"]


def test_handlers_without_a_live_worker() -> None:
    put(new())
    manager(snapshot(worker()), handlers=("other",))
    (one,) = found(pitboss("doctor", "--json"), "handlers", "warning")
    assert "greet" in one["what"]


def test_pauses_and_drains() -> None:
    put(new())
    manager(snapshot(worker(), pools=(pool(wanted=1, paused=True),), draining=True))
    with_store(lambda store: store.change_queue("default", QueueChange(paused=True, by="ann")))
    what = " ".join(one["what"] for one in found(pitboss("doctor", "--json"), "paused", "warning"))
    for said in (
        'queue "default" is paused by ann; 1 task',
        'worker pool "download" is paused',
        "box1 (manager 1) is draining",
    ):
        assert said in what


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    put(new())
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    (one,) = found(pitboss("doctor", "--json", env={"PITBOSS_WORKERS": "50"}), "files", "problem")
    assert one["fix"].startswith("ulimit -n 528")


def test_the_log_folder_of_the_settings(folder: Path) -> None:
    put(new())
    assert found(pitboss("doctor", "--json"), "logs") == []
    (folder / "logs").mkdir()
    assert [one["grade"] for one in found(pitboss("doctor", "--json"), "logs")] == ["ok"]


def test_pools_beyond_the_memory_or_without_a_queue(folder: Path) -> None:
    put(new())
    (folder / "app.py").write_text(APP.format(store=""))
    (folder / "pitboss.toml").write_text(
        'app = "app.py"\nhost_memory = "8GB"\n[pools.a]\nworkers = 9\nmemory = "1GB"\n'
    )
    (one,) = found(pitboss("doctor", "--json"), "memory", "problem")
    assert "9.0 GB of 8.0 GB" in one["what"]
    (folder / "pitboss.toml").write_text('app = "app.py"\n[pools.a]\nqueues = ["other"]\n')
    (one,) = found(pitboss("doctor", "--json"), "pools", "problem")
    assert 'no worker pool serves the queue "default"' in one["what"]


def test_the_log_folder_of_this_hosts_managers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager(snapshot(worker(), logs=str(folder)), host=socket.gethostname())
    manager(snapshot(worker(), logs="/nowhere"), host="elsewhere", pid=2)
    assert [one["grade"] for one in found(pitboss("doctor", "--json"), "logs")] == ["ok"]

    def fails(_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("shutil.disk_usage", fails)
    assert "cannot be used" in found(pitboss("doctor", "--json"), "logs", "problem")[0]["what"]


def test_a_shared_file_system_and_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    put(new())
    manager(snapshot(worker()))
    monkeypatch.setattr(diagnosis, "file_system", lambda _: "nfs4")
    usage = type("Usage", (), {"free": 50 * 1024**2, "total": 10 * 1024**3})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    answer = pitboss("doctor", "--json")
    assert "shared file system (nfs4)" in found(answer, "file-system", "problem")[0]["what"]
    assert "50 MB of 10 GB free" in found(answer, "disk", "problem")[0]["what"]


def test_doctor_looks_at_a_server_without_upgrading_it(durable_dsn: str) -> None:
    answer = pitboss("doctor", "--json", "--store", durable_dsn)
    assert found(answer, "schema", "problem")[0]["fix"].startswith("pitboss db upgrade")
    assert pitboss("db", "status", "--json", "--store", durable_dsn).json()["schema"] == 0
    pitboss("db", "upgrade", "--store", durable_dsn)
    manager(snapshot(worker()), url=durable_dsn)
    well = pitboss("doctor", "--json", "--store", durable_dsn)
    assert well.json()["problems"] == 0
    assert {"durability", "server", "vacuum", "connections", "clock"} <= {one["check"] for one in well.json()["checks"]}


def test_a_missing_key_of_secrets_is_a_problem(folder: Path) -> None:
    assert pitboss("resources", "add", "proxies", "p1", "--field", "url=http://user:hunter22@10.0.0.1:80").code == 0
    assert found(pitboss("doctor", "--json"), "keys")[0]["grade"] == "ok"
    (keys,) = folder.rglob("keys")
    keys.unlink()
    answer = pitboss("doctor", "--json")
    assert answer.code == Exit.UNHEALTHY
    (missing,) = found(answer, "keys", "problem")
    assert "1 member of proxies" in missing["what"]
    assert str(keys) in missing["what"]


def test_names_in_alerts_that_nothing_has_are_warned_of(folder: Path) -> None:
    """Regression: an undeclared function muted all alerts, and wrong names did nothing, without a word."""
    (folder / "app.py").write_text(APP.format(store=""))
    (folder / "pitboss.toml").write_text(
        'app = "app.py"\n'
        '[alerts.channels.phone]\ntype = "function"\n'
        '[alerts.rules.late_schedule]\nonly = ["no-such-schedule"]\n'
        '[alerts.rules.dead_letter_rate]\nonly = ["default"]\naction = "pause nosuchqueue"\n'
        '[alerts.rules.processing_delay]\naction = "scale default +2"\n'
    )
    put(new())
    answer = pitboss("doctor", "--json")
    told = [one["what"] for one in found(answer, "settings", "warning")]
    assert told == [
        'alerts.channels.phone tells the function "phone", which the app does not declare',
        'alerts.rules.dead_letter_rate.action names the queue "nosuchqueue", which is not there',
        'alerts.rules.late_schedule.only names the schedule "no-such-schedule", which is not there',
    ]


def test_alerts_that_a_manager_refuses_are_a_problem(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[alerts.rules]\ndiskk = "off"\n')
    put(new())
    (problem,) = found(pitboss("doctor", "--json"), "settings", "problem")
    assert 'write "disk"' in problem["fix"]
    answer = pitboss("config", "show")
    assert answer.code == Exit.USAGE
    assert 'write "disk"' in answer.err
