"""Settings: which layer wins, where values come from, and the errors for bad ones."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss import App, config
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput


def test_defaults() -> None:
    found = config.loaded()
    assert found.settings.store == f"sqlite:///{Path.cwd()}/pitboss.db"
    assert found.settings.workers >= 1
    assert set(found.origins.values()) == {"default"}
    assert found.folder is None


LAYERS = ("command line", "environment", "file", "code")


@given(present=st.sets(st.sampled_from(LAYERS)))
def test_the_highest_layer_that_says_something_wins(present: set[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        folder = Path.cwd()
        (folder / "pitboss.toml").write_text('store = "postgresql://file/x"' if "file" in present else "")
        patch.setenv("PITBOSS_STORE", "postgresql://environment/x" if "environment" in present else "")
        given = {"store": "postgresql://command/x" if "command line" in present else None}
        code = "postgresql://code/x" if "code" in present else None
        found = config.loaded(given, code_store=code)
    winner = next((layer for layer in LAYERS if layer in present), "default")
    assert found.origins["store"].startswith(winner)
    assert winner.split()[0] in found.settings.store or winner == "default"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("workers", "3", 3),
        ("concurrency", "5", 5),
        ("node", "box-7.example", "box-7.example"),
        ("only_queues", "a, b", ("a", "b")),
        ("on_start", "feed", ("feed",)),
        ("drain", "1m", span("1m")),
        ("drain", "90", span("90s")),
        ("app", "shop:app", "shop:app"),
        ("store", "memory://", "memory://"),
        ("only_pools", "a,b", ("a", "b")),
        ("host_memory", "2GB", 2 * 1024**3),
        ("logs", "/var/log/jobs", "/var/log/jobs"),
        ("log_level", "Warning", "warning"),
        ("log_size", "1GB", 1024**3),
        ("log_age", "2d", span("2d")),
        ("retention.failed", "forever", None),
        ("retention.completed", "1h", span("1h")),
        ("retention.events", "2d", span("2d")),
        ("max_store_size", "2GB", 2 * 1024**3),
        ("max_store_size", "none", None),
        ("min_free_disk", "1GB", 1024**3),
        ("min_free_disk", "0", 0),
        ("defaults.max_attempts", "3", 3),
        ("defaults.timeout", "5m", span("5m")),
        ("defaults.timeout", "90", span("90s")),
        ("defaults.timeout", "none", None),
        ("defaults.backoff", "10s", span("10s")),
        ("defaults.queue_capacity", "1000", 1000),
        ("defaults.queue_capacity", "none", None),
        ("http.enabled", "false", False),
        ("http.host", "0.0.0.0", "0.0.0.0"),
        ("http.port", "8080", 8080),
        ("http.origins", "https://a.org, http://b.org:81", ("https://a.org", "http://b.org:81")),
        ("http.rate_limit", "100/60s", "100/60s"),
        ("http.max_body", "2MB", 2 * 1024**2),
    ],
)
def test_every_setting_can_come_from_the_environment_and_from_a_file(
    key: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv(config.variable(key), text)
    found = config.loaded()
    assert config.flat(found.settings.model_dump())[key] == value
    assert found.origins[key] == f"environment ({config.variable(key)})"
    monkeypatch.delenv(config.variable(key))
    *table, name = key.split(".")
    head = f"[{table[0]}]\n" if table else ""
    (folder / "pitboss.toml").write_text(f'{head}{name} = "{text}"\n')
    found = config.loaded()
    assert config.flat(found.settings.model_dump())[key] == value
    assert found.origins[key] == f"file ({folder / 'pitboss.toml'})"


def test_a_file_is_looked_for_upward_and_its_paths_are_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('app = "shop/app.py:app"\nstore = "sqlite:///data/jobs.db"\n')
    (folder / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep" / "down")
    found = config.loaded()
    assert found.settings.app == f"{folder}/shop/app.py:app"
    assert found.settings.store == f"sqlite:///{folder}/data/jobs.db"
    assert found.folder == folder
    (folder / "pitboss.toml").write_text("workers = 2\n")
    assert config.loaded().settings.store == f"sqlite:///{folder}/pitboss.db"
    assert config.loaded({"store": "sqlite:///x.db"}).settings.store == f"sqlite:///{folder}/deep/down/x.db"


def test_log_files_stand_where_the_store_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    assert config.load().logs == f"{folder}/deep/logs"
    (folder / "pitboss.toml").write_text("workers = 2\n")
    assert config.load().logs == f"{folder}/logs"
    (folder / "pitboss.toml").write_text('logs = "var/log"\n')
    assert config.load().logs == f"{folder}/var/log"
    monkeypatch.setenv("PITBOSS_LOGS", "mine")
    assert config.load().logs == f"{folder}/deep/mine"


def test_a_memory_limit_can_be_lifted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('host_memory = "1GB"\n')
    monkeypatch.setenv("PITBOSS_HOST_MEMORY", "none")
    assert config.load().host_memory is None


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:////abs/x.db", "memory://", "sqlite://x.db", "postgresql://h/d"])
def test_what_is_no_relative_path_stays_as_it_is(url: str) -> None:
    assert config.loaded({"store": url}).settings.store == url


def test_pyproject_serves_too_and_yields_to_pitboss_toml(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.pitboss]\nworkers = 7\n")
    found = config.loaded()
    assert found.settings.workers == 7
    assert found.origins["workers"] == f"file ([tool.pitboss] in {folder / 'pyproject.toml'})"
    (folder / "pitboss.toml").write_text("workers = 8\n")
    found = config.loaded()
    assert found.settings.workers == 8
    assert found.notes == (
        f"{folder / 'pitboss.toml'} is used; [tool.pitboss] in {folder / 'pyproject.toml'} is ignored",
    )


def test_a_pyproject_without_our_table_is_ignored(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.other]\nthis is not toml\n")
    assert config.loaded().folder is None


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ("workers = 0", "workers = 0 cannot be used", "greater than or equal to 1"),
        ('workers = "many"', "workers = 'many' cannot be used", "valid integer"),
        ('drain = "soon"', "drain = 'soon' cannot be used", "a duration is"),
        ('only_queues = ["a b"]', "only_queues = ['a b'] cannot be used", "names are 1 to 128"),
        ("wrokers = 3", 'there is no setting "wrokers"', 'write "workers"'),
        ("[retention]\nfialed = '1d'", 'there is no setting "retention.fialed"', 'write "retention.failed"'),
        ("retention = 3", "retention = 3 cannot be used", "pitboss.toml"),
        ("retentoin = {failed = '1d'}", 'there is no setting "retentoin"', "the settings are"),
        ("workers = true", "workers = True cannot be used", "true or false"),
        ('node = "a b"', "node = 'a b' cannot be used", "names are 1 to 128"),
        ("only_queues = [1]", "only_queues = [1] cannot be used", "valid string"),
        ('logs = ""', "logs = '' cannot be used", "at least 1 character"),
        ('log_level = "loud"', "log_level = 'loud' cannot be used", "debug, info, warning"),
        ("log_level = 3", "log_level = 3 cannot be used", "debug, info, warning"),
        ('log_size = "much"', "log_size = 'much' cannot be used", '"512MB"'),
        ('host_memory = "80%"', "host_memory = '80%' cannot be used", '"512MB"'),
        ("workers = \n", "cannot be read", "line 1"),
        ("min_free_disk = false", "min_free_disk = False cannot be used", '"512MB"'),
        ("max_store_size = 0", "max_store_size = 0 cannot be used", '"512MB"'),
        ("[defaults]\nmax_attempts = 0", "defaults.max_attempts = 0 cannot be used", "greater than or equal to 1"),
        ("[defaults]\nmax_attempts = true", "defaults.max_attempts = True cannot be used", "true or false"),
        ('[defaults]\ntimeout = "0s"', "defaults.timeout = '0s' cannot be used", "some time to run"),
        ("[defaults]\nbackof = 1", 'there is no setting "defaults.backof"', 'write "defaults.backoff"'),
        ("[http]\nport = 70000", "http.port = 70000 cannot be used", "less than or equal to 65535"),
        ("[http]\nport = true", "http.port = True cannot be used", "true or false"),
        ('[http]\nhost = "box1:8000"', "http.host = 'box1:8000' cannot be used", "without a port"),
        ('[http]\nhost = "http://box1"', "http.host = 'http://box1' cannot be used", "without a port"),
        ('[http]\norigins = ["example.org"]', "http.origins = ['example.org'] cannot be used", "scheme and host"),
        ('[http]\norigins = ["https://a.org/x"]', "cannot be used", "without a path"),
        ('[http]\nrate_limit = "fast"', "http.rate_limit = 'fast' cannot be used", "a number of starts per time"),
        ('[http]\nrate_limit = "2/s, 9/m"', "cannot be used", "describe one"),
        ('[http]\nmax_body = "much"', "http.max_body = 'much' cannot be used", '"512MB"'),
        ("[http]\nprot = 1", 'there is no setting "http.prot"', 'write "http.port"'),
    ],
)
def test_bad_values_name_the_file_the_key_and_the_fix(folder: Path, text: str, what: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.toml") in caught.value.what
    assert caught.value.fix


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_WORKERS", "many")
    with pytest.raises(InvalidInput, match="environment \\(PITBOSS_WORKERS\\)"):
        config.loaded()
    monkeypatch.setenv("PITBOSS_WORKERS", "1")
    monkeypatch.setenv("PITBOSS_RETENTION", "abc")
    with pytest.raises(InvalidInput, match="environment cannot be read"):
        config.loaded()


def test_a_misspelt_variable_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_STROE", "memory://")
    (note,) = config.loaded().notes
    assert note == "PITBOSS_STROE is not a setting and is ignored; did you mean PITBOSS_STORE?"


def test_a_folder_that_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInput, match="working folder is gone"):
        config.loaded()
    monkeypatch.chdir(folder)


def test_settings_override_the_store_in_the_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with App("sqlite:///code.db") as app:

        @app.task
        def job() -> None: ...

        job.enqueue()
        assert (folder / "code.db").exists()
        app.close()
        monkeypatch.setenv("PITBOSS_STORE", "sqlite:///environment.db")
        job.enqueue()
        assert (folder / "environment.db").exists()
        app.use("sqlite:///explicit.db")
        job.enqueue()
        assert (folder / "explicit.db").exists()
