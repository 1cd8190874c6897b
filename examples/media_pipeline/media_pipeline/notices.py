"""What people are told: a text per queue, for results and failures. The document's `processWorkerNotification`."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from media_pipeline.app import CUTTER, DOWNLOAD, PREVIEW
from media_pipeline.messages import DownloadMessage, FileMessage, Message
from pitboss import DeadTask


class Notice(NamedTuple):
    """`kind` is "result" or "error"; `payload` is the document's."""

    kind: str
    queue: str
    to: str
    text: str
    payload: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """The notice as other programs get it."""
        return {
            "type": self.kind,
            "queueName": self.queue,
            "to": self.to,
            "text": self.text,
            "payload": self.payload,
        }


def downloaded(message: DownloadMessage, results: Sequence[str]) -> Notice:
    text = f"Downloaded {_count(results, 'video')} from {message.link}: {_names(results)}"
    return _result(DOWNLOAD, message, text, {"results": list(results), "link": message.link})


def cut(message: FileMessage, segments: Sequence[str]) -> Notice:
    name = PurePath(message.file_path).name
    text = f"Cut {name} into {_count(segments, 'segment')}" if segments else f"{name} is short and stays whole"
    return _result(CUTTER, message, text, {"filePath": message.file_path, "results": list(segments)})


def previewed(message: FileMessage, clip: str, strip: str) -> Notice:
    text = f"Preview of {PurePath(message.file_path).name} is ready"
    return _result(PREVIEW, message, text, {"filePath": message.file_path, "results": [clip, strip]})


def failed(dead: DeadTask) -> Notice | None:
    """What to say about a task that failed for good; None if the person wants to hear nothing."""
    error = dead.error.message if dead.error else dead.reason
    if dead.queue == DOWNLOAD:
        asked = DownloadMessage.model_validate(dead.params["message"])
        return _error(dead.queue, asked, f"Download failed: {asked.link}", error, {"link": asked.link})
    of_file = FileMessage.model_validate(dead.params["message"])
    what = "Segmentation" if dead.queue == CUTTER else "Preview"
    text = f"{what} failed: {PurePath(of_file.file_path).name}"
    return _error(dead.queue, of_file, text, error, {"filePath": of_file.file_path})


def _result(queue: str, asked: Message, text: str, payload: dict[str, Any]) -> Notice:
    return Notice("result", queue, asked.from_, text, {**payload, "from": asked.from_, "noreply": asked.noreply})


def _error(queue: str, asked: Message, text: str, error: str, subject: dict[str, Any]) -> Notice | None:
    if asked.noreply:
        return None
    payload = {"error": error, **subject, "from": asked.from_}
    return Notice("error", f"{queue}_dlq", asked.from_, f"{text} ({error})", payload)


def _count(items: Sequence[str], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _names(paths: Sequence[str]) -> str:
    return ", ".join(PurePath(path).name for path in paths)
