"""Settings: command line before environment before file before default, and errors that say how to fix them."""

from pathlib import Path
from typing import Any

import pytest

from pitboss.remote import AsyncWorker, Config, ConfigError, Worker
from pitboss.remote.config import SETTINGS


def test_the_defaults() -> None:
    config = Config.load()
    assert (config.api_url, config.poll_interval, config.max_runs) == ("http://localhost:8000/api", 10, 0)
    assert (config.debug, config.concurrency, config.api_key) == (False, 1, "")
    assert config.worker_id.startswith("worker-")
    assert Config.load().worker_id != config.worker_id


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker.toml").write_text("poll_interval = 1\nmax_runs = 1\nworker_id = 'file'\nconcurrency = 7\n")
    monkeypatch.setenv("POLL_INTERVAL", "2")
    monkeypatch.setenv("MAX_RUNS", "2")
    config = Config.load(["--config", "worker.toml", "--poll-interval", "3"])
    assert (config.poll_interval, config.max_runs, config.worker_id) == (3, 2, "file")
    assert (config.concurrency, config.prefetch) == (7, 0)


def test_code_wins_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_ID", "environment")
    monkeypatch.setenv("POLL_INTERVAL", "2")
    worker = Worker("http://code", config={"poll_interval": 1})
    assert (worker.api_url, worker.worker_id, worker.config["poll_interval"]) == ("http://code", "environment", 1)


def test_every_documented_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (
        "--api-url https://h/api --api-key k --worker-id w --task-type-ids 1 2 --type-pattern a.% --poll-interval 0.5"
        " --max-runs 9 --debug --concurrency 3"
    )
    config = Config.load(flags.split())
    assert (config.api_url, config.api_key, config.worker_id) == ("https://h/api", "k", "w")
    assert (config.task_type_ids, config.type_pattern, config.poll_interval) == ((1, 2), "a.%", 0.5)
    assert (config.max_runs, config.debug, config.concurrency) == (9, True, 3)


def test_every_documented_name_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {
        "TASKMANAGER_API_URL": "https://h/api", "TASKMANAGER_API_KEY": "k", "WORKER_ID": "w", "POLL_INTERVAL": "5",
        "MAX_RUNS": "9", "DEBUG": "true",
    }  # fmt: skip
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    config = Config.load()
    assert (config.api_url, config.api_key, config.worker_id) == ("https://h/api", "k", "w")
    assert (config.poll_interval, config.max_runs, config.debug) == (5, 9, True)


def test_a_file_of_names_and_values_is_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# the worker\nexport WORKER_ID='a worker'\nPOLL_INTERVAL=4 # seconds\nYOUTUBE_API_KEY=\"y # z\"\nMAX_RUNS=\n\n"
    )
    config = Config.load()
    assert (config.worker_id, config.poll_interval, config.max_runs) == ("a worker", 4, 0)
    assert config["YOUTUBE_API_KEY"] == "y # z"
    assert config.get("OTHER", 1) == 1


def test_a_toml_file_may_have_a_table_for_the_worker(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text("[worker]\ntask_type_ids = [3, 4]\ndebug = true\nyoutube = 'x'\n")
    config = Config.load(file="all.toml")
    assert (config.task_type_ids, config.debug, config["youtube"]) == ((3, 4), True, "x")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("TASKMANAGER_API_URL", "localhost:8000", "http:// or https://"),
        ("TASKMANAGER_API_URL", "", "is required"),
        ("TASKMANAGER_API_KEY", "schlüssel", "ASCII"),
        ("POLL_INTERVAL", "ten", "number of seconds"),
        ("POLL_INTERVAL", "0", "number of seconds"),
        ("POLL_INTERVAL", "nan", "number of seconds"),
        ("MAX_RUNS", "-1", "whole number, 0 or more"),
        ("MAX_RUNS", "1.5", "whole number"),
        ("DEBUG", "maybe", "true or false"),
        ("WORKER_ID", "x" * 201, "1 to 200"),
        ("WORKER_CONCURRENCY", "0", "1 or more"),
        ("WORKER_TASK_TYPE_IDS", "1,a", "ids of task types"),
    ],
)
def test_a_bad_value_says_what_why_and_how_to_fix_it(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"(?s){name} is .*Why: .*Fix: .*{name}=") as raised:
        Config.validate()
    assert why in str(raised.value)
    assert isinstance(raised.value, ValueError)
    assert Worker.main([]) == 2
    assert why in capsys.readouterr().err


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hidden" not in repr(Config(api_key="hidden"))
    with pytest.raises(ConfigError) as raised:
        Config(api_key="hidden\nkey")
    assert "hidden" not in str(raised.value)


def test_a_bad_value_that_is_overridden_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLL_INTERVAL", "ten")
    assert Config.load(["--poll-interval", "3"]).poll_interval == 3


def test_a_name_that_is_nearly_a_setting_is_an_error_and_another_is_kept() -> None:
    with pytest.raises(ConfigError, match="poll_interval"):
        Worker("http://test", "w", {"pol_interval": 1})
    assert Worker("http://test", "w", {"youtube_api_key": "k"}).config["youtube_api_key"] == "k"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("poll_interval = [")
    (tmp_path / "bad.env").write_text("A=1\nno value\n")
    for name, why in (("none.toml", "No such file"), ("bad.toml", "Invalid value"), ("bad.env", "line 2")):
        with pytest.raises(ConfigError, match=why):
            Config.load(["--config", name])


def test_validate_checks_the_environment_and_an_object_is_valid_once_it_exists() -> None:
    assert Config.validate().api_url == "http://localhost:8000/api"
    with pytest.raises(ConfigError, match="max_runs is 'many'"):
        Config(max_runs="many")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_a_worker_is_made_without_any_network(kind: Any) -> None:
    worker = kind(api_url="http://test", worker_id="test-worker", config={"poll_interval": 1})
    assert (worker.api_url, worker.worker_id, worker.config["poll_interval"]) == ("http://test", "test-worker", 1)
    assert (worker.should_stop, worker.stats) == (False, {"processed": 0, "failed": 0})
    assert kind(config=Config(worker_id="w")).worker_id == "w"
    assert kind("http://test", "w2", Config(worker_id="w")).worker_id == "w2"
    with pytest.raises(NotImplementedError):
        worker.process_task({"id": "1"})


def test_settings_have_distinct_names() -> None:
    assert len({said["env"] for said in SETTINGS.values()}) == len(SETTINGS)


def test_a_setting_of_the_workers_own_is_read_from_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.toml").write_text("[worker]\nMY_API_KEY = 'file'\nMY_REGION = 'eu'\n")
    monkeypatch.setenv("MY_API_KEY", "environment")
    config = Config.load(file=tmp_path / "all.toml")
    assert (config["MY_API_KEY"], config["MY_REGION"], config.get("MY_NOTHING", 1)) == ("environment", "eu", 1)
