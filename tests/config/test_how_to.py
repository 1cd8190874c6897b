"""The how-to on pools shows the same pools three times, in TOML, YAML and code; all three must be equal."""

import re
from pathlib import Path
from typing import Any

from pitboss import config
from pitboss.config.yaml_file import tables
from pitboss.model.pool import PoolSpec

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "pools.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_three_forms_are_equal(folder: Path) -> None:
    (folder / "pitboss.toml").write_text(block("toml"))
    toml = config.load()
    (folder / "pitboss.toml").unlink()
    (folder / "pitboss.yaml").write_text(block("yaml"))
    yaml = config.load()
    (folder / "pitboss.yaml").unlink()
    assert tables(block("yaml"))["pools"].keys() == toml.pools.keys()
    names: dict[str, Any] = {}
    exec(block("python"), names)
    app = names["app"]
    wanted = config.pools(toml)
    assert config.pools(yaml) == wanted
    assert config.pools(config.load(), list(app.pools.values())) == wanted
    assert {pool.name for pool in wanted} == {"download", "cutter", "preview"}
    assert all(isinstance(pool, PoolSpec) for pool in wanted)
    assert {handler.queue for handler in app.describe()} == {queue for pool in wanted for queue in pool.queues or ()}
