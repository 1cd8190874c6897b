"""Queues in the file and the environment, above what code declares."""

from pathlib import Path
from typing import Any

import pytest

from pitboss import config
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate
from pitboss.model.queue import QueueSettings
from pitboss.model.retention import FOREVER
from pitboss.model.states import State

TOML = """
[queues.mail]
capacity = 1000
rate = "10/s"
retention = "1d"

[queues."a.b:c"]
retention = {completed = "2d", failed = "forever"}

[queues.idle]
"""
YAML = """
queues:
  mail: {capacity: 1000, rate: 10/s, retention: 1d}
  "a.b:c":
    retention: {completed: 2d, failed: forever}
  idle:
"""
DAY = span("1d")
MAIL = QueueSettings(
    capacity=1000, rate=rate("10/s"), retention={State.COMPLETED: DAY, State.CANCELLED: DAY, State.FAILED: DAY}
)


def queues(**declared: QueueSettings) -> dict[str, QueueSettings]:
    return config.queue_settings(config.load(), declared)


@pytest.mark.parametrize(("name", "text"), [("pitboss.toml", TOML), ("pitboss.yaml", YAML)])
def test_tables_in_a_file(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert queues() == {
        "mail": MAIL,
        "a.b:c": QueueSettings(retention={State.COMPLETED: 2 * DAY, State.FAILED: FOREVER}),
        "idle": QueueSettings(),
    }
    origins = config.loaded().origins
    assert origins["queues.mail.capacity"] == f"file ({folder / name})"
    assert origins["queues.a.b:c.retention.failed"] == f"file ({folder / name})"


def test_every_key_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__CAPACITY", "1000")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__RATE", "10/s")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__RETENTION", "1d")
    found = config.loaded()
    assert (queues(), found.notes) == ({"mail": MAIL}, ())
    assert found.origins["queues.mail.rate"] == "environment (PITBOSS_QUEUES__MAIL__RATE)"
    assert found.origins["queues.mail.retention.failed"] == "environment (PITBOSS_QUEUES__MAIL__RETENTION)"
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__RETENTION__FAILED", "30")
    assert queues()["mail"].retention == MAIL.retention | {State.FAILED: span("30s")}


def test_sources_override_each_other_key_by_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('[queues.mail]\nrate = "1/s"\nretention = {failed = "30d"}\n')
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__CAPACITY", "7")
    code = QueueSettings(capacity=5, rate=rate("9/s"), retention={State.COMPLETED: DAY, State.FAILED: DAY})
    assert queues(mail=code, other=code) == {
        "mail": QueueSettings(
            capacity=7, rate=rate("1/s"), retention={State.COMPLETED: DAY, State.FAILED: span("30d")}
        ),
        "other": code,
    }
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__RETENTION", "2d")
    assert set(queues(mail=code)["mail"].retention.values()) == {2 * DAY}


def test_none_removes_a_limit_of_the_code(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[queues.mail]\nrate = "none"\ncapacity = "none"\n')
    assert queues(mail=QueueSettings(capacity=5, rate=rate("9/s"))) == {"mail": QueueSettings()}


def test_a_default_capacity_is_for_queues_that_have_none(folder: Path) -> None:
    text = '[defaults]\nqueue_capacity = 50\n[queues.free]\ncapacity = "none"\n[queues.own]\ncapacity = 3\n'
    (folder / "pitboss.toml").write_text(text)
    found = queues(plain=QueueSettings(), code=QueueSettings(capacity=4))
    assert {name: one.capacity for name, one in found.items()} == {"plain": 50, "code": 4, "free": None, "own": 3}


def test_the_environment_finds_the_spelling_of_the_file_and_of_the_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pitboss.toml").write_text('[queues."Video.cut"]\nrate = "1/s"\n')
    monkeypatch.setenv("PITBOSS_QUEUES__VIDEO_CUT__CAPACITY", "1")
    monkeypatch.setenv("PITBOSS_QUEUES__A_B__CAPACITY", "2")
    monkeypatch.setenv("PITBOSS_QUEUES__NEW__CAPACITY", "3")
    found = config.queue_settings(config.load(), {"a:b": QueueSettings(rate=rate("5/s"))})
    assert found == {
        "a:b": QueueSettings(capacity=2, rate=rate("5/s")),
        "Video.cut": QueueSettings(capacity=1, rate=rate("1/s")),
        "new": QueueSettings(capacity=3),
    }
    exact = config.queue_settings(config.load(), {"a:b": QueueSettings(), "a_b": QueueSettings()})
    assert (exact["a:b"].capacity, exact["a_b"].capacity) == (None, 2)
    with pytest.raises(InvalidInput, match="can be any of a:b, a-b"):
        config.queue_settings(config.load(), {"a:b": QueueSettings(), "a-b": QueueSettings()})


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ('queues = ["a"]', "queues = ['a'] cannot be used", "only_queues"),
        ('queues = "a"', "queues = 'a' cannot be used", "only_queues"),
        ("[queues]\nmail = 3", "queues.mail = 3 cannot be used", "write [queues.NAME]"),
        ("[queues.mail]\ncapcity = 3", 'no setting "queues.mail.capcity"', 'write "queues.mail.capacity"'),
        ("[queues.mail]\ncapacity = 0", "queues.mail.capacity = 0 cannot be used", "above 0"),
        ("[queues.mail]\ncapacity = true", "queues.mail.capacity = True cannot be used", "above 0"),
        ('[queues.mail]\nrate = "fast"', "queues.mail.rate = 'fast' cannot be used", "starts per time"),
        ("[queues.mail]\nrate = 3", "queues.mail.rate = 3 cannot be used", "20/min"),
        ('[queues.mail]\nretention = "soon"', "queues.mail.retention.completed = 'soon'", "a duration is"),
        ('[queues.mail.retention]\nrunning = "1d"', "queues.mail.retention.running", "retention.completed"),
        ('[queues."a b"]\ncapacity = 3', "queues.a b.capacity = 3 cannot be used", "names are 1 to 128"),
    ],
)
def test_bad_values_name_the_file_the_key_and_the_fix(folder: Path, text: str, what: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.toml") in caught.value.what


def test_the_old_variable_is_refused_with_the_name_of_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_QUEUES", "mail")
    with pytest.raises(InvalidInput, match=r"environment \(PITBOSS_QUEUES\)") as caught:
        config.loaded()
    assert "PITBOSS_ONLY_QUEUES" in str(caught.value)
    monkeypatch.delenv("PITBOSS_QUEUES")
    monkeypatch.setenv("PITBOSS_ONLY_QUEUES", "mail,a")
    assert config.load().only_queues == ("mail", "a")


def test_bad_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text("[queues.mail]\ncapacity = 3\n")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__CAPCITY", "3")
    (note,) = config.loaded().notes
    assert note.endswith("is ignored; did you mean PITBOSS_QUEUES__MAIL__CAPACITY?")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__CAPACITY", "many")
    with pytest.raises(InvalidInput, match=r"environment \(PITBOSS_QUEUES__MAIL__CAPACITY\)"):
        config.loaded()


DOCUMENT = """
worker_config:
  max_concurrent_tasks: 10
  retry_limit: 3
  timeout: 300
  queue_size: 1000
"""


def slots(settings: config.Settings) -> tuple[int, int]:
    return settings.workers, settings.concurrency


def test_worker_config_is_understood(folder: Path) -> None:
    (folder / "pitboss.yaml").write_text(DOCUMENT)
    found = config.loaded()
    assert slots(found.settings) == (1, 10)
    assert found.settings.defaults == config.DefaultSettings(max_attempts=4, timeout=300, queue_capacity=1000)
    assert found.settings.defaults.timeout == span("300s")
    assert config.queue_settings(found.settings, {"mail": QueueSettings()})["mail"].capacity == 1000
    place = folder / "pitboss.yaml"
    assert found.origins["concurrency"] == f"file (worker_config.max_concurrent_tasks in {place})"
    assert found.origins["defaults.max_attempts"] == f"file (worker_config.retry_limit in {place})"
    assert found.notes == ()


def test_worker_config_in_toml(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.pitboss.worker_config]\nretry_limit = 0\n")
    settings = config.load()
    assert settings.defaults == config.DefaultSettings(max_attempts=1)
    assert settings.concurrency == 16


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"workers": 4}, (4, 3)),
        ({"workers": "3"}, (3, 4)),
        ({"workers": 20}, (20, 1)),
        ({"concurrency": 4}, (3, 4)),
        ({"concurrency": 16}, (1, 16)),
        ({"workers": 2, "concurrency": 2}, (2, 2)),
    ],
)
def test_native_keys_win_and_the_total_stays(folder: Path, said: dict[str, Any], wanted: tuple[int, int]) -> None:
    (folder / "pitboss.yaml").write_text(DOCUMENT)
    assert slots(config.loaded(said).settings) == wanted
    (folder / "pitboss.yaml").write_text("".join(f"{key}: {value}\n" for key, value in said.items()) + DOCUMENT)
    assert slots(config.load()) == wanted


def test_native_defaults_win(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.yaml").write_text(DOCUMENT + "defaults: {max_attempts: 9, timeout: none}\n")
    monkeypatch.setenv("PITBOSS_DEFAULTS__QUEUE_CAPACITY", "5")
    assert config.load().defaults == config.DefaultSettings(max_attempts=9, queue_capacity=5)


def test_with_pools_the_total_is_not_one_and_that_is_said(folder: Path) -> None:
    (folder / "pitboss.yaml").write_text(DOCUMENT + "pools: {a: , b: }\n")
    found = config.loaded()
    assert "not a total" in found.notes[0]
    assert [(pool.max_workers, pool.concurrency) for pool in config.pools(found.settings)] == [(1, 10), (1, 10)]


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        (
            "worker_config: {retry_limt: 3}",
            'no setting "worker_config.retry_limt"',
            'write "worker_config.retry_limit"',
        ),
        ("worker_config: 3", "worker_config = 3 cannot be used", "a table of keys"),
        ("worker_config: {retry_limit: -1}", "worker_config.retry_limit = -1 cannot be used", "at least 0"),
        ("worker_config: {max_concurrent_tasks: many}", "max_concurrent_tasks = 'many'", "at least 1"),
        ("worker_config: {max_concurrent_tasks: 50000}", "concurrency = 50000", "worker_config.max_concurrent_tasks"),
        ("worker_config: {timeout: soon}", "defaults.timeout = 'soon'", "worker_config.timeout in"),
        ("worker_config: {timeout: 0}", "defaults.timeout = 0", "some time to run"),
        ("worker_config: {queue_size: 0}", "defaults.queue_capacity = 0", "worker_config.queue_size in"),
        ("worker_confg: {timeout: 3}", 'no setting "worker_confg', "the settings are"),
    ],
)
def test_bad_worker_config(folder: Path, text: str, what: str, said: str) -> None:
    (folder / "pitboss.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.yaml") in caught.value.what
