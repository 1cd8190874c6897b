"""Shows a person what happens: a line for each task that begins or ends."""

from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

_SHOWN = ("download", "cutter", "preview")
_OPEN = ("held", "scheduled", "pending", "running")


class Progress:
    """Compares the tasks with those that it has seen before."""

    def __init__(self) -> None:
        self._seen = dict[str, tuple[str, str]]()

    def show(self, tasks: list[dict[str, Any]]) -> bool:
        """Print what is new; whether all tasks have ended."""
        for task in sorted(tasks, key=lambda one: str(one["id"])):
            now = (task["state"], task["reason"] or "")
            if task["type"] in _SHOWN and self._seen.get(task["id"]) != now:
                self._seen[task["id"]] = now
                if line := _line(task):
                    say(f"  {task['type']:<9} {line}")
        return bool(tasks) and not any(task["state"] in _OPEN for task in tasks)


def people(tasks: list[dict[str, Any]]) -> set[str]:
    """Whose messages have become tasks."""
    return {task["params"]["message"]["from"] for task in tasks if task["type"] in _SHOWN}


def _line(task: dict[str, Any]) -> str:
    message = task["params"]["message"]
    subject = urlsplit(message["link"]).path if "link" in message else PurePath(message["filePath"]).name
    match task["state"]:
        case "running":
            return f"…  {subject}"
        case "scheduled":
            return f"⏸  {subject}: {task['reason']}"
        case "failed":
            return f"✗  {subject}: {task['error_message']}"
        case "completed":
            return f"→  {subject}: {_made(task['result']) or 'is short, not cut'}"
    return ""


def _made(result: dict[str, Any]) -> str:
    """The files of `results`, `segments`, or `preview` and `strip`."""
    lists = [value if isinstance(value, list) else [value] for value in result.values()]
    return ", ".join(PurePath(file).name for files in lists for file in files)


def say(text: str) -> None:
    print(text, flush=True)
