"""What the documentation says about the command line is so."""

from pathlib import Path

import pytest

import pitboss as public
from pitboss import config
from pitboss.cli.errors import Exit
from pitboss.config.worker_config import KEYS as WORKER_CONFIG
from pitboss.model.partition_keys import KEYS as PARTITION_KEYS
from pitboss.model.pool_keys import KEYS
from tests.cli.command_line import pitboss

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def test_every_exit_code_is_documented_in_the_same_words() -> None:
    page = (DOCS / "reference" / "exit-codes.md").read_text()
    for code in Exit:
        assert f"| {code.value} | {code.meaning} |" in page


def test_every_setting_is_documented() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    for key in config.flat(config.Settings().model_dump(by_alias=True)):
        assert f"| `{key}` | `{config.variable(key)}` |" in page
    for key in KEYS:
        assert f"\n| `{key}` |" in page.partition("## Pools")[2]
    for key in ("capacity", "rate", "retention", *PARTITION_KEYS):
        assert f"\n| `{key}` |" in page.partition("## Queues")[2].partition("##")[0]
    for key in WORKER_CONFIG:
        assert f"\n| `{key}` |" in page.partition("## worker_config")[2].partition("## ")[0]


@pytest.mark.parametrize("page", [["filters"], ["completion"]])
def test_pages_of_help_are_printed_in_the_reference(page: list[str]) -> None:
    assert pitboss("help", *page).out.strip() in (DOCS / "reference" / "cli.md").read_text()


def test_every_command_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    for name in (
        "up",
        "plan",
        "serve",
        "init",
        "status",
        "health",
        "why",
        "ps",
        "top",
        "stop",
        "drain",
        "doctor",
        "logs",
        "audit",
        "activity",
        "help",
    ):
        assert f"$ pitboss {name}" in text
    for noun in (
        "tasks",
        "batches",
        "queues",
        "partitions",
        "schedules",
        "events",
        "alerts",
        "resources",
        "pools",
        "dead",
        "keys",
        "db",
        "config",
    ):
        for line in pitboss(noun, "--help").out.split("Commands:")[1].splitlines():
            if line.strip():
                assert f"pitboss {noun} {line.split()[0]}" in text


def test_every_public_name_can_be_imported() -> None:
    for name in public.__all__:
        assert getattr(public, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = public.nothing
