"""YAML and TOML read alike."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pitboss import config
from pitboss.config.yaml_file import tables
from pitboss.model.errors import InvalidInput

TOML = """
app = "shop/app.py"
store = "sqlite:///jobs.db"
concurrency = 1_000
only_queues = ["mail", "no"]
drain = "1m"
logs = "log/files"
log_level = "warning"

[retention]
completed = "1d"
failed = "forever"

[pools.download]
queues = "download,on"
workers = "1-8"
memory = "512MB"
cpu = 0.5
delay = "8-20s"

[pools.cutter]
workers = {min = 0, max = 4}
max_restarts = 3

[pools.cutter.env]
MODE = "yes"
RATIO = "1:30"

[pools.idle]
"""
YAML = """
app: shop/app.py
store: sqlite:///jobs.db
concurrency: 1_000
only_queues: [mail, no]
drain: 1m
logs: log/files
log_level: warning

retention:
  completed: 1d
  failed: forever

pools:
  download:
    queues: download,on
    workers: 1-8
    memory: 512MB
    cpu: 0.5
    delay: 8-20s
  cutter:
    workers: {min: 0, max: 4}
    max_restarts: 3
    env:
      MODE: yes
      RATIO: 1:30
  idle:
"""


def load_as(folder: Path, name: str, text: str) -> config.Loaded:
    path = folder / name
    path.write_text(text)
    found = config.loaded()
    path.unlink()
    assert found.origins["concurrency"] == f"file ({path})"
    return found


def test_the_same_settings_in_both(folder: Path) -> None:
    toml = load_as(folder, "pitboss.toml", TOML)
    assert toml.settings.pools["cutter"]["env"] == {"MODE": "yes", "RATIO": "1:30"}
    for name in ("pitboss.yaml", "pitboss.yml"):
        yaml = load_as(folder, name, YAML)
        assert yaml.settings == toml.settings
        assert config.pools(yaml.settings) == config.pools(toml.settings)
        assert set(yaml.origins) == set(toml.origins)
        assert yaml.folder == toml.folder == folder


def test_side_by_side_the_toml_is_used_and_that_is_told(folder: Path) -> None:
    for name, workers in (("pitboss.toml", 1), ("pitboss.yaml", 2), ("pitboss.yml", 3)):
        (folder / name).write_text(f"workers {'=' if name.endswith('toml') else ':'} {workers}\n")
    (folder / "pyproject.toml").write_text("[tool.pitboss]\nworkers = 4\n")
    found = config.loaded()
    assert found.settings.workers == 1
    used = folder / "pitboss.toml"
    assert found.notes == (
        f"{used} is used; {folder / 'pitboss.yaml'} is ignored",
        f"{used} is used; {folder / 'pitboss.yml'} is ignored",
        f"{used} is used; [tool.pitboss] in {folder / 'pyproject.toml'} is ignored",
    )


def test_it_is_looked_for_upward_like_the_toml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.yaml").write_text("store: sqlite:///data/jobs.db\n")
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    assert config.load().store == f"sqlite:///{folder}/data/jobs.db"


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ("drain: 1:30", "drain = '1:30' cannot be used", "a duration is"),
        ("workers: yes", "workers = 'yes' cannot be used", "valid integer"),
        ("workers: true", "workers = True cannot be used", "true or false"),
        ("workers: 0x10", "workers = '0x10' cannot be used", "valid integer"),
        ("drain: 2026-01-01", "drain = '2026-01-01' cannot be used", "a duration is"),
        ("only_queues: [1, 2]", "only_queues = [1, 2] cannot be used", "valid string"),
        ("pools: {a: {restart: no}}", "pools.a.restart = 'no' cannot be used", "always, on-failure"),
        ("pools: {a: {max_age: 1:30}}", "pools.a.max_age = '1:30' cannot be used", "a duration is"),
        ("pools: {a: {env: {DEBUG: true}}}", "pools.a.env.DEBUG cannot be used", "in quotes"),
        ("pools: {a: {wrokers: 1}}", 'there is no setting "pools.a.wrokers"', 'write "pools.a.workers"'),
        ("pools:\n  a:\n  workers: 2", "pools.workers = 2 cannot be used", "table"),
        ("workers:", "workers has no value", "give it a value"),
        ("pools: {a: {memory: }}", "pools.a.memory has no value", "give it a value"),
        ("pools: {a: {}, a: {}}", "it is not YAML", '"a" appears twice'),
        ("? [a, b]\n: 1", "it is not YAML", "a key is not text"),
        ("queues:\n  [", "it is not YAML", "at line 2, column 4"),
        ("- workers", "it holds no settings", "list"),
        ("workers", "it holds no settings", "str"),
        ("a: !!python/name:os.system", "it is not YAML", "could not determine a constructor"),
    ],
)
def test_what_cannot_be_used_is_refused_clearly(folder: Path, text: str, what: str, said: str) -> None:
    (folder / "pitboss.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.yaml") in caught.value.what


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("Off", "Off"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0o7", "0o7"),
        ("2026-01-01", "2026-01-01"),
        ("=", "="),
        (".5", ".5"),
        ("1_000", 1000),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("'true'", "true"),
        ("[a, 1]", ["a", 1]),
    ],
)
def test_words_mean_what_they_mean_in_toml(text: str, value: Any) -> None:
    found = tables(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_pools_can_share_what_they_have_in_common() -> None:
    text = "pools:\n  a: &like {workers: 2, memory: 1MB}\n  b: {<<: *like, memory: 2MB}\n  c: {<<: *like}\n"
    found = tables(text)["pools"]
    assert found["b"] == {"workers": 2, "memory": "2MB"}
    assert found["a"] == found["c"] == {"workers": 2, "memory": "1MB"}


def test_keys_are_text() -> None:
    assert tables("1: a\nno: b\n'true': c\n") == {"1": "a", "no": "b", "true": "c"}
    assert tables("") == tables("# nothing\n") == {}


def test_the_library_is_loaded_only_where_there_is_yaml(folder: Path) -> None:
    program = "import sys; from pitboss import App, config; config.load(); print('yaml' in sys.modules)"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == b"False\n"
    (folder / "pitboss.yaml").write_text("workers: 2\n")
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == b"True\n"
