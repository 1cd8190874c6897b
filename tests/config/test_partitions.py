"""Partitions of queues in the file and the environment, above what code declares."""

from pathlib import Path

import pytest

from pitboss import config
from pitboss.model.errors import InvalidInput
from pitboss.model.partition import Partitioning
from pitboss.model.queue import QueueSettings

TOML = """
[queues.targets]
partition_by = "{state}"
on_missing = "steal"
max_per_key = 5
keys = ["CA", "MT", "TX"]
pool = "scrapers"

[queues.targets.partitions]
0 = ["CA", "MT"]
1 = ["TX"]

[queues.targets.weights]
CA = 2.5
MT = 1

[queues."a.b"]
partition_by = "{shop}/{country}"
mode = "balanced"
"""
YAML = """
queues:
  targets:
    partition_by: "{state}"
    on_missing: steal
    max_per_key: 5
    keys: [CA, MT, TX]
    pool: scrapers
    partitions: {0: [CA, MT], 1: [TX]}
    weights: {CA: 2.5, MT: 1}
  "a.b": {partition_by: "{shop}/{country}", mode: balanced}
"""
STATIC = Partitioning(
    by="{state}",
    mode="static",
    table={0: ("CA", "MT"), 1: ("TX",)},
    keys=("CA", "MT", "TX"),
    weights={"CA": 2.5, "MT": 1.0},
    on_missing="steal",
    pool="scrapers",
)
TABLE = '[queues.t]\npartition_by = "{state}"\n[queues.t.partitions]\n'


def queues(**declared: QueueSettings) -> dict[str, QueueSettings]:
    return config.queue_settings(config.load(), declared)


@pytest.mark.parametrize(("name", "text"), [("pitboss.toml", TOML), ("pitboss.yaml", YAML)])
def test_tables_in_a_file(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert queues() == {
        "targets": QueueSettings(partitions=STATIC, max_per_key=5),
        "a.b": QueueSettings(partitions=Partitioning(by="{shop}/{country}", mode="balanced")),
    }
    origins = config.loaded().origins
    assert origins["queues.targets.partitions.1"] == f"file ({folder / name})"
    assert origins["queues.a.b.mode"] == f"file ({folder / name})"


def test_single_keys_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__PARTITION_BY", "{shop}")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__MODE", "balanced")
    monkeypatch.setenv("PITBOSS_QUEUES__MAIL__MAX_PER_KEY", "3")
    assert queues() == {"mail": QueueSettings(partitions=Partitioning(by="{shop}", mode="balanced"), max_per_key=3)}
    assert config.loaded().notes == ()


def test_settings_override_the_code_key_by_key(folder: Path) -> None:
    code = QueueSettings(partitions=STATIC, max_per_key=5)
    (folder / "pitboss.toml").write_text('[queues.t]\non_missing = "reassign"\nmax_per_key = "none"\n')
    (found,) = queues(t=code).values()
    assert found.max_per_key is None
    assert found.partitions is not None
    assert (found.partitions.on_missing, found.partitions.table) == ("reassign", STATIC.table)


def test_a_table_of_the_code_is_replaced_as_a_whole(folder: Path) -> None:
    code = QueueSettings(partitions=Partitioning(by="{state}", mode="static", table={0: ("A",), 1: ("B",)}))
    (folder / "pitboss.toml").write_text('[queues.t.partitions]\n0 = ["A", "B"]\n')
    (found,) = queues(t=code).values()
    assert found.partitions == Partitioning(by="{state}", mode="static", table={0: ("A", "B")})
    (folder / "pitboss.toml").write_text('[queues.t]\nmode = "balanced"\n')
    (found,) = queues(t=code).values()
    assert found.partitions == Partitioning(by="{state}", mode="balanced")


def test_a_table_makes_a_queue_static(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[queues.t.partitions]\n0 = ["A"]\n')
    (found,) = queues(t=QueueSettings(partitions=Partitioning(by="{state}"))).values()
    assert found.partitions == Partitioning(by="{state}", mode="static", table={0: ("A",)})


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ('[queues.t]\npartition_by = "state"', "queues.t.partition_by = 'state' cannot be used", 'like "{state}"'),
        ("[queues.t]\npartition_by = 3", "queues.t.partition_by = 3 cannot be used", 'like "{state}"'),
        ('[queues.t]\nmode = "statc"', "queues.t.mode = 'statc' cannot be used", 'write "static"'),
        ('[queues.t]\non_missing = "wait"', "queues.t.on_missing = 'wait' cannot be used", "hold, reassign, steal"),
        ("[queues.t]\nmax_per_key = 0", "queues.t.max_per_key = 0 cannot be used", "above 0"),
        ("[queues.t]\nkeys = 3", "queues.t.keys = 3 cannot be used", 'like ["CA", "MT"]'),
        ('[queues.t]\npool = "a b"', "queues.t.pool = 'a b' cannot be used", "choose a name"),
        ("[queues.t]\npartitions = 3", "queues.t.partitions = 3 cannot be used", "write [queues.NAME.partitions]"),
        ("[queues.t.partitions]", "queues.t.partitions = {} cannot be used", "write [queues.NAME.partitions]"),
        (TABLE + 'a = ["CA"]', "queues.t.partitions.a = ['CA'] cannot be used", "numbered from 0"),
        (TABLE + "0 = [true]", "queues.t.partitions.0 = [True] cannot be used", "keys are texts"),
        ('[queues.t.weights]\nCA = "x"', "queues.t.weights.CA = 'x' cannot be used", "a number above 0"),
        ('[queues.t]\npartiton_by = "{a}"', 'no setting "queues.t.partiton_by"', 'write "queues.t.partition_by"'),
    ],
)
def test_bad_values_name_the_file_the_key_and_the_fix(folder: Path, text: str, what: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.toml") in caught.value.what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[queues.t]\nmode = "static"', "has mode, but no partition_by"),
        ("[queues.t]\nmax_per_key = 3", "has max_per_key, but no partition_by"),
        ('[queues.t]\npartition_by = "{a}"\nmode = "static"', "no slots"),
        ('[queues.t]\npartition_by = "{a}"\non_missing = "hold"', "has mode 'affinity' and on_missing"),
        (TABLE + '0 = ["A"]\n2 = ["A", "B", "B"]', "keys in two slots: A (slots 0, 2); keys twice in one slot: B"),
        (TABLE + '0 = ["A"]\n2 = ["A"]', "slots that are left out: 1"),
    ],
)
def test_keys_that_do_not_belong_together_are_refused_with_the_code(folder: Path, text: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        queues()
    assert said in str(caught.value)
    assert '"t"' in caught.value.what
