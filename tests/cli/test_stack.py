"""`pitboss tasks stack`: what it prints, and what it says when there is none."""

from pathlib import Path

from pitboss.cli.errors import Exit
from tests.cli.command_line import Process, new, pitboss, put, run_all

APP = """
import asyncio
from pitboss import App

app = App()

async def inner() -> None:
    await asyncio.sleep(60)

@app.task
async def greet(name: str) -> None:
    await inner()
"""


def test_the_lines_of_a_running_task_are_printed(folder: Path) -> None:
    (folder / "app.py").write_text(APP)
    with Process("up", "app.py", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        (task,) = put(new())
        while pitboss("tasks", "show", task, "--json").json()["task"]["state"] != "running":
            continue
        answer = pitboss("tasks", "stack", task)
        assert answer.code == 0, answer.err
        lines = [line.strip() for line in answer.out.splitlines() if "app.py" in line]
        assert [line.rpartition(" ")[2] for line in lines] == ["greet", "inner"]
        found = pitboss("tasks", "stack", task, "--json").json()["stack"]
        assert (found["worker"], found["id"]) == ("default-1", task)


def test_a_task_that_does_not_run_has_none() -> None:
    (task,) = put(new())
    assert "is pending" in pitboss("tasks", "stack", task).err
    run_all()
    answer = pitboss("tasks", "stack", task)
    assert (answer.code, "is completed" in answer.err) == (Exit.REFUSED, True)
