"""What the documentation says about messages and facts is what the code sends."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pitboss.model.facts import AnyFact, Fact, kind_of
from pitboss.worker import channel

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
MESSAGES = (DOCS / "reference" / "messages.md").read_text(encoding="utf-8")
HOOKS = (DOCS / "how-to" / "hooks.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \| [^|]{10,} \|$", re.MULTILINE)


def documented(text: str, heading: str) -> dict[str, tuple[str, ...]]:
    """Name → fields, of the table under a heading."""
    _, found, rest = text.partition(f"## {heading}\n")
    assert found, heading
    return {name: tuple(re.findall(r"`(\w+)`", fields)) for name, fields in ROW.findall(rest.partition("\n## ")[0])}


def coded(union: Any) -> dict[str, tuple[str, ...]]:
    return {str(one.__struct_config__.tag): one.__struct_fields__ for one in get_args(union) or (union,)}


@pytest.mark.parametrize(
    ("heading", "union"),
    [
        ("From the manager to a worker", channel.ToWorker),
        ("From a worker to its manager", channel.ToManager),
        ("From the manager to the hook process", channel.ToHooks),
        ("From the hook process to its manager", channel.FromHooks),
        ("From the manager to the HTTP server", channel.ToHttp),
        ("From the HTTP server to its manager", channel.FromHttp),
    ],
)
def test_the_tables_of_messages_are_those_of_the_code(heading: str, union: Any) -> None:
    assert documented(MESSAGES, heading) == coded(union)


def test_the_frame_is_the_documented_one() -> None:
    frame = channel.encoded([channel.RecallMessage()])
    assert f"version byte | 1 | `{channel.VERSION}`" in MESSAGES
    assert frame == bytes([0, 0, 0, len(frame) - 5, channel.VERSION, 0x91, 0x91, 0xA6]) + b"recall"
    assert f"{channel.MAX_FRAME // 2**20} MiB" in MESSAGES


def test_the_table_of_facts_is_that_of_the_code() -> None:
    shared = set(Fact.__struct_fields__)
    found = documented(HOOKS, "Facts")
    assert set(found) == {f"on_{kind_of(one)}" for one in get_args(AnyFact)}
    for one in get_args(AnyFact):
        fields = found[f"on_{kind_of(one)}"]
        task = set(documented(HOOKS, "Fields of every task fact")) if "id" in one.__struct_fields__ else set()
        assert set(fields) | task | shared == set(one.__struct_fields__), one


def test_the_fields_of_every_fact_are_documented() -> None:
    assert set(documented(HOOKS, "Fields of every fact")) == set(Fact.__struct_fields__)
