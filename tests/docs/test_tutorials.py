"""The tutorial about limits, and its short form in the README: code runs, and commands are accepted in their order."""

import os
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pitboss.testing.sandbox import sandbox
from tests.cli.desk import pitboss

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "proxies-with-limits.md").read_text()
PROFILES = 24


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the tutorial's two files of data, and no settings of the person who runs the tests."""
    for name in [*os.environ]:
        if name.startswith("PITBOSS_") or name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (members,) = blocks("text")
    (tmp_path / "proxies.txt").write_text(members)
    (tmp_path / "profiles.jsonl").write_text(
        "".join(f'{{"profile": "user-{one}"}}\n' for one in range(1, PROFILES + 1))
    )
    return tmp_path


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_readme_says_the_same_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = re.findall(r"```python\n(# checks\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code, _, main = sample.partition('if __name__ == "__main__":\n')
    names: dict[str, Any] = {}
    exec(code, names)
    load, batch, told = textwrap.dedent(main).splitlines()
    with sandbox(names["app"]) as box:
        exec(f"{load}\n{batch}", names)
        box.drain_all()
        exec(told, names)
    assert capsys.readouterr().out.startswith("done ['ann through 10.0.0.1:8080', 'bob through 10.0.0.2:8080']")


def declared() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    return names


def test_the_batch_runs_on_all_members_and_its_results_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    names = declared()
    with sandbox(names["app"]) as box:
        names["proxies"].load("proxies.txt")
        names["check"].batch(({"profile": f"user-{one}"} for one in range(PROFILES)), on_complete=names["report"])
        box.drain_all()
        _, printing = blocks("python")
        exec(printing.replace("from app import app", ""), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == PROFILES
    assert {line.partition(" through ")[2] for line in lines} == {f"10.0.0.{one}:8080" for one in (1, 2, 3)}


def test_every_command_on_the_page_is_accepted() -> None:
    names = declared()
    with names["app"]:
        # A manager that starts makes its handlers known to the store; here nobody starts one.
        names["report"].enqueue("none", "done")
    lines = [line for block in blocks("console") for line in block.splitlines()]
    ran = [shlex.split(line)[2:] for line in lines if re.match(r"\$ pitboss (?!up)", line)]
    answers = [pitboss(*command) for command in ran]
    assert [answer.code for answer in answers] == [0] * len(ran), answers
    assert {command[0] for command in ran} == {"resources", "batches"}
    assert "3 members added to proxies, 0 changed" in answers[0].err
    assert f"with {PROFILES} items" in answers[1].err
