"""The code on the page about batches runs, and its tables name every status and option."""

import re
from pathlib import Path
from typing import Any

from pitboss.client.batches import BatchOptions
from pitboss.model.batch import BatchStatus
from pitboss.testing.sandbox import sandbox

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "batches.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_runs_in_order() -> None:
    first, mixed, follow, steer = blocks()
    declared, made = first.split("night = ")
    names: dict[str, Any] = {}
    exec(declared, names)
    with sandbox(names["app"]) as box:
        exec(f"night = {made}", names)
        exec(mixed, names)
        names["other"] = names["check"].batch([{"profile": "eve"}])
        moving, ending = steer.split("night.requeue")
        exec(moving, names)
        exec("other.cancel('wrong list')", names)
        box.drain()
        exec(follow, names)
        exec(re.sub(r"night\.cancel.*", "", f"night.requeue{ending}"), names)
        assert {batch.name for batch in names["app"].batches()} == {"mixed", ""}


def test_every_status_and_option_is_on_the_page() -> None:
    for status in BatchStatus:
        assert f"`{status}`" in PAGE
    for option in BatchOptions.__annotations__.keys() - {"by"}:
        assert f"| `{option}` |" in PAGE
