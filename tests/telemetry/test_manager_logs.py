"""A manager's file has its own lines and the warnings of libraries, and all files stay within their limits."""

import logging
from pathlib import Path

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.log_settings import log_settings
from pitboss.telemetry.logs.files import manager_file
from pitboss.telemetry.logs.manager import NAME, set_up_manager
from tests.telemetry.bench import events, fresh_logging, lines, settings


def test_facts_are_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_logging():
        logs = set_up_manager(settings(tmp_path))
        logs.log.info("worker started", worker="download-1", pool="download", pid=7)
        logs.log.bind(session=3).warning("worker crashed", worker="download-1", code=-9)
        logs.log.debug("not this")
        logs.close()
    started, crashed = lines(manager_file(tmp_path))
    assert (started["event"], started["level"], started["logger"]) == ("worker started", "info", NAME)
    assert (started["worker"], started["pool"], started["pid"]) == ("download-1", "download", 7)
    assert (crashed["session"], crashed["code"], crashed["level"]) == (3, -9, "warning")
    assert capsys.readouterr().err == ""


def test_complaints_of_libraries_are_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_logging() as root:
        logs = set_up_manager(settings(tmp_path))
        logging.getLogger("asyncio").error("an error of a library")
        logging.getLogger("asyncio").info("chatter")
        logs.close()
        assert root.handlers == []
        assert root.level == logging.WARNING
    assert events(manager_file(tmp_path)) == ["an error of a library"]
    assert "an error of a library" in capsys.readouterr().err


def test_managers_in_turn_write_each_line_once(tmp_path: Path) -> None:
    with fresh_logging():
        for number in range(3):
            logs = set_up_manager(settings(tmp_path))
            logs.log.info("begun", number=number)
            logs.close()
    assert [line["number"] for line in lines(manager_file(tmp_path))] == [0, 1, 2]


def test_files_are_small_where_little_is_kept(tmp_path: Path) -> None:
    for total_size, file_size in ((1 << 40, 10 << 20), (200 << 20, 10 << 20), (20 << 20, 1 << 20), (1, 64 << 10)):
        chosen = log_settings(str(tmp_path), level="info", total_size=total_size, age=1)
        assert (chosen.file_size, chosen.total_size) == (file_size, total_size)


def test_pruning_is_a_fact_too(tmp_path: Path) -> None:
    old = tmp_path / "worker-a-1.log.20231111T000000.000000"
    old.write_bytes(b"x" * 1000)
    with fresh_logging():
        logs = set_up_manager(settings(tmp_path, total_size=500))
        logs.prune(round(old.stat().st_mtime * SECOND))
        logs.prune(round(old.stat().st_mtime * SECOND) if old.exists() else 0)
        logs.close()
    assert not old.exists()
    (line,) = lines(manager_file(tmp_path))
    assert (line["event"], line["files"]) == ("old logs removed", [old.name])
