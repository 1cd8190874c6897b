"""The short form of `benchmarks.operations`: command and manager are killed, and each task is retried once."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.operations import measured
from tests.faults.stores import MakeUrl

# More than one act changes.
TASKS = 1_200


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_each_task_is_retried_once_though_command_and_manager_are_killed(
    engine: str, make_url: MakeUrl, tmp_path: Path
) -> None:
    report = asyncio.run(measured(make_url(engine), tmp_path, TASKS, "300/s"))
    # So few claims, on a machine that runs other tests, say nothing of their speed: the long form judges that.
    assert [fault for fault in report.faults if "as long" not in fault] == []
    assert 0 < report.stopped < 60
