"""What must be true at the end: of the files, the tasks, the notices, and of what the web site saw."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from media_demo.processes import Killed, alive
from media_demo.sending import DeadLetter
from media_demo.site import BUSY, GONE, RETRY_AFTER, Arrival
from media_demo.videos import CORRUPT, VIDEOS, seconds_of

DELAY = 0.25  # min_delay in pitboss.toml
SEGMENT = 30
UNREADABLE = f"{CORRUPT}.mp4 cannot be read as a video"
_NEAR = 0.5
Check = tuple[str, bool]


class Sent(NamedTuple):
    """What was sent: the message with the broken link, texts that are no messages (only with RabbitMQ), and who wanted
    no reply."""

    broken: dict[str, Any]
    malformed: list[str]
    silent: str


class After(NamedTuple):
    """The tasks, the dead letters in RabbitMQ, and how many messages waited there."""

    tasks: list[dict[str, Any]]
    letters: list[DeadLetter]
    waiting: int

    def of(self, handler: str, state: str) -> list[dict[str, Any]]:
        return [task for task in self.tasks if task["type"] == handler and task["state"] == state]


@dataclass(frozen=True)
class Findings:
    """What the run left: `first` when everything had ended, `last` when the broken link was mended and tried again."""

    folder: Path
    sent: Sent
    first: After
    last: After
    notices: list[dict[str, Any]]
    arrivals: list[Arrival]
    killed: Killed
    exit_code: int | None


def checks(found: Findings) -> Iterator[Check]:
    """Each check in words, and whether it holds."""
    yield from _of_files(found)
    yield from _of_failures(found.first)
    if found.sent.malformed:
        yield from _of_dead_letters(found)
    yield from _of_the_mended_link(found)
    yield from _of_the_kill(found)
    yield from _of_notices(found)
    yield from _of_the_site(found.arrivals)
    yield "the manager stopped when it was asked to", found.exit_code == 0


def _of_files(found: Findings) -> Iterator[Check]:
    lengths = dict[str, list[float]]()
    for task in found.last.of("cutter", "completed"):
        name = Path(task["params"]["message"]["filePath"]).stem.rpartition("-")[2]
        lengths[name] = [seconds_of(found.folder / "media" / one) for one in task["result"]["segments"]]
    for name, (_, seconds) in VIDEOS.items():
        wanted = _expected(seconds)
        made = lengths.get(name, [-1.0])
        same = len(made) == len(wanted) and all(abs(a - b) < _NEAR for a, b in zip(made, wanted, strict=True))
        shown = " + ".join(f"{one:.0f}" for one in made) or "not cut"
        yield f"{name}, {seconds} s: {shown}", same
    previews = found.last.of("preview", "completed")
    there = [found.folder / "media" / file for task in previews for file in task["result"].values()]
    whole = len(previews) == len(VIDEOS) and all(path.is_file() and path.stat().st_size for path in there)
    yield f"each of {len(VIDEOS)} videos has a preview and a strip of thumbnails", whole
    sheet = found.folder / "contact_sheet.png"
    yield f"the contact sheet of all, in this order, is {sheet}", sheet.is_file()


def _expected(seconds: int) -> list[float]:
    if seconds <= SEGMENT:
        return []
    return [min(SEGMENT, seconds - start) for start in range(0, seconds, SEGMENT)]


def _of_failures(first: After) -> Iterator[Check]:
    downloads = [task["error_message"] or "" for task in first.of("download", "failed")]
    yield "the broken link is the only failed download: 404", len(downloads) == 1 and "404" in downloads[0]
    cuts = [task["error_message"] or "" for task in first.of("cutter", "failed")]
    yield "the corrupt file is the only one that could not be cut", len(cuts) == 1 and UNREADABLE in cuts[0]
    at_once = all(task["attempts"] == 1 for task in (*first.of("download", "failed"), *first.of("cutter", "failed")))
    yield "neither was tried a second time", at_once


def _of_dead_letters(found: Findings) -> Iterator[Check]:
    letters, sent = found.first.letters, found.sent
    broken = [one for one in letters if _is_of(one, "download")]
    same = [json.loads(one.body) for one in broken] == [sent.broken]
    told = all("404 Not Found" in one.headers["x-pitboss-error"] for one in broken)
    in_queue = {one.queue for one in broken} == {"download_queue_dlq"}
    yield "the broken link is in download_queue_dlq: as it was sent, with the 404", same and told and in_queue
    corrupt = [one for one in letters if _is_of(one, "cutter")]
    same = len(corrupt) == 1 and json.loads(corrupt[0].body)["filePath"].endswith(f"{CORRUPT}.mp4")
    told = all(UNREADABLE in one.headers["x-pitboss-error"] for one in corrupt)
    in_queue = {one.queue for one in corrupt} == {"cutter_queue_dlq"}
    yield "the corrupt file is in cutter_queue_dlq, with what ffprobe said", same and told and in_queue
    yield "both name their task, so that it can be found", _ids(broken + corrupt) == _failed(found.first)
    malformed = [one for one in letters if one.headers["x-pitboss-reason"] == "malformed"]
    same = [(one.queue, one.body) for one in malformed] == [("download_queue_dlq", text) for text in sent.malformed]
    yield "malformed messages are in download_queue_dlq, byte for byte, with the reason", same
    yield "there are no other dead letters", len(letters) == len(broken + corrupt + malformed)
    yield "no message waits in RabbitMQ: the store has them all", found.first.waiting == 0


def _is_of(letter: DeadLetter, handler: str) -> bool:
    """Whether a task of this handler failed; a malformed message was no task."""
    return "x-pitboss-task" in letter.headers and letter.headers["x-pitboss-handler"] == handler


def _ids(letters: list[DeadLetter]) -> set[str]:
    return {one.headers["x-pitboss-task"] for one in letters}


def _failed(first: After) -> set[str]:
    return {task["id"] for task in first.tasks if task["state"] == "failed"}


def _of_the_mended_link(found: Findings) -> Iterator[Check]:
    downloads = [task["params"]["message"] for task in found.last.of("download", "completed")]
    yield "the broken link was tried again when it was mended, and completed", found.sent.broken in downloads
    if found.sent.malformed:
        left = sorted(one.body for one in found.last.letters if one.queue == "download_queue_dlq")
        yield "it is gone from download_queue_dlq, and what is malformed stayed", left == sorted(found.sent.malformed)


def _of_the_kill(found: Findings) -> Iterator[Check]:
    lost = [task for task in found.last.tasks if task["lost_claims"]]
    again = len(lost) == 1 and lost[0]["type"] == "cutter" and lost[0]["state"] == "completed"
    yield "the task of the killed worker was run again, and completed", again
    yield "the kill cost it no attempt", all(task["attempts"] == 1 for task in lost)
    yield "its ffmpeg is gone", not alive(found.killed.ffmpeg) and not alive(found.killed.worker)
    media = found.folder / "media"
    half = [path for path in media.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]
    yield "no half file is left", not half


def _of_notices(found: Findings) -> Iterator[Check]:
    texts = [notice["text"] for notice in found.notices]
    results = sum(notice["type"] == "result" for notice in found.notices)
    yield f"people were told of {results} results", results > 0
    told = [text for text in texts if text.startswith("Download failed: ") and GONE in text]
    yield "… of the broken link", len(told) == 1
    told = [text for text in texts if text.startswith("Segmentation failed: ") and CORRUPT in text]
    yield "… and of the corrupt file", len(told) == 1
    silent = found.sent.silent
    yield f"{silent} wanted no reply, and got none", all(notice["to"] != silent for notice in found.notices)
    yield "no notice came twice", len(texts) == len(set(texts))


def _of_the_site(arrivals: list[Arrival]) -> Iterator[Check]:
    gaps = [after.at - before.at for before, after in pairwise(arrivals)]
    yield f"no request came within {DELAY:g} s of another (least: {min(gaps):.2f} s)", min(gaps) >= DELAY
    busy = [one.at for one in arrivals if one.path == BUSY]
    after = [one.at - busy[0] for one in arrivals if one.at > busy[0]]
    rested = len(busy) > 1 and min(after) >= RETRY_AFTER
    yield f"after its 429 the site was left alone for the {RETRY_AFTER} s that it asked for", rested
    yield "no robot went where robots.txt forbids it", not any(one.path.startswith("/private") for one in arrivals)
    fetched = [one.path for one in arrivals if one.path.startswith("/files/")]
    yield "each file was fetched once", len(fetched) == len(set(fetched)) > 0
    yield "every request had our name", all(one.client.startswith("MediaPipeline/") for one in arrivals)
