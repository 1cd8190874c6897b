"""Everything that a worker logs is in its file, with the task; the app's own logging is not changed."""

import asyncio
import errno
import logging
import logging.config
import logging.handlers
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from pitboss import App
from pitboss.client import context
from pitboss.model.outcome import Completed
from pitboss.model.task import Claim
from pitboss.telemetry.logs.files import worker_file
from pitboss.telemetry.logs.handlers import ToFile
from pitboss.telemetry.logs.worker import WorkerLogs, set_up_worker
from pitboss.worker.runner import Runner
from tests.telemetry.bench import claim, events, fresh_logging, lines, settings

CONFIGURED = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"mine": {"class": "logging.handlers.MemoryHandler", "capacity": 1000, "flushLevel": 100}},
    "loggers": {"shop": {"handlers": ["mine"], "level": "INFO", "propagate": False}},
    "root": {"handlers": ["mine"], "level": "ERROR"},
}


def running() -> Claim | None:
    found = context.current()
    return found.task if found else None


@contextmanager
def worker(folder: Path, **changes: Any) -> Iterator[WorkerLogs]:
    logs = set_up_worker(settings(folder, **changes), pool="download", worker="download-1", current=running)
    try:
        yield logs
    finally:
        logs.detach()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return worker_file(tmp_path, "download-1")


def test_everything_from_the_level_on_is_in_the_file(tmp_path: Path, file: Path) -> None:
    with fresh_logging(), worker(tmp_path):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger("shop").log(level, "at %d", level)
        logging.getLogger("library.part").info("theirs")
    assert events(file) == ["at 20", "at 30", "theirs"]
    assert {(line["pool"], line["worker"]) for line in lines(file)} == {("download", "download-1")}


def test_the_console_shows_warnings_in_a_line_if_the_app_configured_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("library").addHandler(logging.NullHandler())
    with fresh_logging(), worker(tmp_path):
        logging.getLogger("library").addHandler(logging.NullHandler())
        logging.getLogger("shop").info("not this")
        try:
            raise KeyError("missing")
        except KeyError:
            logging.getLogger("library").exception("no\nsuch \x1b[31mthing")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.split(" ", 1)[1] == "download-1 ERROR   library: no such \\x1b[31mthing  KeyError: 'missing'\n"


def test_the_apps_own_configuration_stays_as_it_is(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fresh_logging() as root:
        logging.config.dictConfig(CONFIGURED)
        shop = logging.getLogger("shop")
        (theirs,) = root.handlers
        assert isinstance(theirs, logging.handlers.MemoryHandler)
        with worker(tmp_path):
            assert (root.level, shop.level, shop.propagate) == (logging.ERROR, logging.INFO, False)
            assert root.handlers[0] is shop.handlers[0] is theirs
            shop.info("sold")
            logging.getLogger("other").info("held back by their level")
            logging.getLogger("other").error("broken")
        assert [record.getMessage() for record in theirs.buffer] == ["sold", "broken"]
        assert (root.handlers, shop.handlers) == ([theirs], [theirs])
    assert events(file) == ["the app's logging configuration drops everything below ERROR", "sold", "broken"]
    assert capsys.readouterr().err == ""


def test_an_app_that_configures_its_logging_while_it_runs_loses_us_for_a_moment_only(
    tmp_path: Path, file: Path
) -> None:
    with fresh_logging(), worker(tmp_path) as logs:
        logging.getLogger("shop").warning("before")
        logging.config.dictConfig(CONFIGURED)
        logs.attach()
        logging.getLogger("shop").warning("after")
        logging.getLogger("shop").propagate = True
        logs.attach()
        logging.getLogger("shop").warning("once")
    assert events(file) == ["before", "after", "once"]


def test_what_structlog_says_is_in_the_file_with_its_facts(tmp_path: Path, file: Path) -> None:
    with fresh_logging():
        log = structlog.get_logger(component="till")
        with worker(tmp_path), structlog.contextvars.bound_contextvars(shop="north"):
            log.info("sold %d", 3, price=5, name="pear")
            log.debug("not this")
            log.msg("as info")
            try:
                raise ValueError("no money")
            except ValueError:
                log.exception("unpaid")
    sold, plain, unpaid = lines(file)
    assert (sold["event"], sold["level"], sold["logger"]) == ("sold 3", "info", __name__)
    assert (sold["price"], sold["name"], sold["component"], sold["shop"]) == (5, "pear", "till", "north")
    assert (plain["event"], plain["level"]) == ("as info", "info")
    assert (unpaid["event"], unpaid["level"]) == ("unpaid", "error")
    assert unpaid["exception"].endswith("ValueError: no money")


def test_structlog_as_the_app_configured_it_is_left_alone(tmp_path: Path) -> None:
    with fresh_logging():
        kept: list[Any] = []
        structlog.configure(processors=[structlog.testing.LogCapture()])
        before = structlog.get_config()
        kept = before["processors"]
        with worker(tmp_path):
            assert structlog.get_config()["processors"] is kept
            assert structlog.get_config() == before


def test_the_logger_class_that_the_app_chose_stays(tmp_path: Path) -> None:
    class Chosen(logging.Logger):
        pass

    before = logging.getLoggerClass()
    try:
        logging.setLoggerClass(Chosen)
        with fresh_logging(), worker(tmp_path):
            assert logging.getLoggerClass() is Chosen
    finally:
        logging.setLoggerClass(before)


app = App()
log = logging.getLogger("shop.tasks")


@app.task
async def on_the_loop(note: str) -> None:
    log.info("began %s", note)
    await asyncio.sleep(0)
    await asyncio.to_thread(log.info, "aside %s", note)
    await asyncio.gather(*(_part(note, number) for number in range(2)))


async def _part(note: str, number: int) -> None:
    await asyncio.sleep(0)
    structlog.get_logger().info(f"part {number} {note}")


@app.task
def in_a_thread(note: str) -> None:
    log.info("thread %s in %s", note, threading.current_thread().name, extra={"note": note})


async def test_every_line_of_a_handler_names_its_task(tmp_path: Path, file: Path) -> None:
    with fresh_logging() as root, ThreadPoolExecutor(2, thread_name_prefix="hand") as executor, worker(tmp_path):
        root.manager.loggerDict["shop.tasks"] = log
        log.parent = root
        runner = Runner(app.handlers, executor=executor)
        claims = [
            numbered(f"01900000-0000-7000-8000-00000000000{number}", handler, number)
            for number, handler in enumerate(("on_the_loop", "on_the_loop", "in_a_thread", "in_a_thread"))
        ]
        outcomes = await asyncio.gather(*(runner.run(one) for one in claims))
        assert [type(ran.outcome) for ran in outcomes] == [Completed] * 4
        log.info("between tasks")
    found = lines(file)
    assert len(found) == 2 * 4 + 2 + 1
    for line in found[:-1]:
        (number,) = {word[1:] for word in line["event"].split() if word.startswith("n")}
        assert line["task_id"] == f"01900000-0000-7000-8000-00000000000{number}"
        assert (line["attempt"], line["queue"]) == (int(number) + 1, "mail")
        assert line["handler"] in ("on_the_loop", "in_a_thread")
    assert [line["note"] for line in found if "thread n" in line["event"] and "note" in line] != []
    assert "task_id" not in found[-1]


def numbered(task: str, handler: str, number: int) -> Claim:
    return msgspec.structs.replace(claim(task, handler, "mail", number + 1), params=f'{{"note":"n{number}"}}')


def test_a_full_disk_is_told_once_and_never_to_the_handler(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, full = os.write, True

    def limited(where: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(where, data)

    with fresh_logging(), worker(tmp_path):
        monkeypatch.setattr(os, "write", limited)
        for number in range(3):
            logging.getLogger("shop").info("lost %d", number)
        full = False
        logging.getLogger("shop").info("kept")
    said = capsys.readouterr().err
    assert said == f"pitboss: {file} cannot be written: No space left on device; log lines are lost until it can\n"
    found = [line for line in file.read_text().splitlines() if line]
    assert len(found) == 2
    assert '"event":"kept"' in found[0]
    assert '"lost":3' in found[1]


def test_a_folder_that_cannot_be_made_stops_no_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    with fresh_logging(), worker(tmp_path / "taken" / "logs"):
        logging.getLogger("shop").info("lost")
    assert "cannot be written" in capsys.readouterr().err


def test_a_child_process_of_a_handler_writes_whole_lines_too(tmp_path: Path, file: Path) -> None:
    code = f"""
import logging, os
from pitboss.model.log_settings import LogSettings
from pitboss.telemetry.logs.worker import set_up_worker
set_up_worker(LogSettings(folder={str(tmp_path)!r}), pool="download", worker="download-1", current=lambda: None)
children = [os.fork() for _ in range(2)]
for number in range(200):
    logging.getLogger("shop").info("line %d", number)
if all(children):
    [os.waitpid(child, 0) for child in children]
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    found = lines(file)
    assert len(found) == 4 * 200
    assert len({line["pid"] for line in found}) == 4


def test_a_worker_does_not_load_structlog_unless_its_app_does() -> None:
    code = "import pitboss, sys, pitboss.worker.main, pitboss.telemetry.logs.worker\n"
    code += "from pitboss.model.log_settings import LogSettings\n"
    code += "logs = pitboss.telemetry.logs.worker.set_up_worker\n"
    code += "logs(LogSettings(folder='/nowhere'), pool='p', worker='p-1', current=lambda: None)\n"
    code += "print([name for name in ('structlog', 'rich', 'pygments') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_our_handler_is_known_by_its_class(tmp_path: Path) -> None:
    with fresh_logging() as root, worker(tmp_path) as logs:
        logs.attach()
        assert [type(handler) for handler in root.handlers].count(ToFile) == 1
