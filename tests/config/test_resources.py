"""Resource pools with settings from file and environment, and their documentation."""

import re
from pathlib import Path
from typing import Any

import pytest

from pitboss import App, config
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window
from pitboss.model.resource import HOUR, MINUTE
from pitboss.model.resource_keys import KEYS, declared_resources
from pitboss.testing.sandbox import sandbox

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
DECLARED = declared_resources("my-proxies", {"per_hour": 50, "per_minute": 6, "cooldown": "15m"}, ())


def test_what_is_said_outside_overrides_code_key_by_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('[resources.my-proxies]\nper_hour = 20\nmin_delay = "3s"\n[resources.other]\n')
    monkeypatch.setenv("PITBOSS_RESOURCES__MY_PROXIES__PER_MINUTE", "none")
    found = config.loaded()
    rules = config.resource_rules(found.settings, DECLARED)
    assert rules.limits.windows == (Window(20, HOUR),)
    assert (rules.limits.min_delay, rules.cooldown) == (3 * SECOND, 15 * MINUTE)
    assert found.notes == ()
    assert found.origins["resources.my-proxies.per_hour"].startswith("file")


def test_a_pool_that_no_code_declares_is_refused(folder: Path) -> None:
    (folder / "pitboss.toml").write_text("[resources.my_proxies]\nper_hour = 20\n")
    ((name, rules),) = config.all_resource_rules(config.load(), [DECLARED])
    assert (name, rules.limits.windows[-1]) == ("my-proxies", Window(20, HOUR))
    (folder / "pitboss.toml").write_text("[resources.proxies]\nper_hour = 20\n")
    with pytest.raises(InvalidInput, match=r"resources.proxies, which the app does not have"):
        config.all_resource_rules(config.load(), [DECLARED])


def test_without_settings_the_code_holds() -> None:
    assert config.resource_rules(config.load(), DECLARED) == DECLARED.rules


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[resources.proxies]\nper_houre = 5\n", r"resources.proxies.per_houre = 5 .*pitboss.toml"),
        ('[resources.proxies]\ncooldown = "soon"\n', r"resources.proxies.cooldown = 'soon'"),
        ("[resources]\nproxies = 5\n", "resources"),
    ],
)
def test_mistakes_are_refused_with_their_place(folder: Path, text: str, told: str) -> None:
    (folder / "pitboss.toml").write_text(text)
    with pytest.raises(InvalidInput, match=f"(?s){told}"):
        config.load()


def test_the_key_file_is_where_it_is_set_or_beside_the_store(folder: Path) -> None:
    def found(text: str) -> Path:
        (folder / "pitboss.toml").write_text(text)
        return config.key_file(config.loaded())

    assert found("") == folder / "pitboss.db-pitboss" / "keys"
    assert found('store = "sqlite:///data/jobs.db"') == folder / "data" / "jobs.db-pitboss" / "keys"
    assert found('store = "postgresql://host/jobs"') == folder / ".pitboss" / "keys"
    assert found('secrets_file = "mine"') == folder / "mine"


def test_keys_in_the_environment_are_no_setting_and_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_SECRET_KEYS", " topsecret1 ,topsecret2,")
    assert config.secret_keys() == ("topsecret1", "topsecret2")
    assert "topsecret" not in str(config.loaded())


def test_every_key_is_documented() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text().partition("## Resource pools")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(KEYS)


def test_the_how_to_runs_as_it_is_printed(folder: Path) -> None:
    page = (DOCS / "how-to" / "resources.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    app: App = names["app"]
    with sandbox(app) as box:
        for block in blocks[1:]:
            # A lease outside a task waits in real time, which the sandbox's clock does not move.
            names["proxies"].add_many(
                {"name": f"eu-{one}", "fields": {"host": "h"}, "labels": "eu"} for one in range(3)
            )
            exec(block, names)
        for file in re.findall(r"```text\n(.*?)```", page, re.DOTALL):
            (folder / "members").write_text(file)
            assert names["proxies"].load("members") >= 1
        names["accounts"].add("a1")
        done = [names["check"].enqueue("anna"), names["fetch"].enqueue("u"), names["post"].enqueue("anna", "hello")]
        box.drain_all()
        assert "through" in done[0].result(timeout=1)
        assert done[2].result(timeout=1) == "a1"
    assert sorted(path.name for path in folder.iterdir()) == ["members"], "a sandbox leaves no keys behind"


def test_the_table_in_the_how_to_is_read_by_the_settings(folder: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", (DOCS / "how-to" / "resources.md").read_text(), re.DOTALL)
    assert block
    (folder / "pitboss.toml").write_text(block[1])
    rules = config.resource_rules(config.load(), declared_resources("proxies", {"per_hour": 50}, ()))
    assert rules.limits.windows == (Window(30, HOUR),)
