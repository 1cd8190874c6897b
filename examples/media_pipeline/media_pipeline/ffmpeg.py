"""Runs ffmpeg and ffprobe. A cancelled task kills them here; with a worker that dies, Pitboss kills them."""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# A downloaded file can be a playlist that names files of this machine. Only these containers are read.
_FORMATS = "mov,matroska,webm,avi,flv,mpeg,mpegts,ogg"
READ = ("-format_whitelist", _FORMATS, "-protocol_whitelist", "file")
_MICROSECONDS = 1_000_000
_FULL_DISK = "No space left on device"
_SHOWN = 300
Report = Callable[[float], None]


class NotAVideo(Exception):
    """The file cannot be read as a video: trying again does not help."""


class ToolFailed(Exception):
    """ffmpeg was killed, is not installed, or had no space: another attempt may succeed."""


class Video(NamedTuple):
    seconds: float
    width: int
    height: int


async def probe(path: Path) -> Video:
    """What ffprobe says about the first video stream."""
    shown = ("-show_entries", "format=duration:stream=width,height", "-select_streams", "v:0", "-of", "json")
    text = await _run("ffprobe", path.name, "-v", "error", *READ, *shown, str(path))
    found = json.loads(text)
    try:
        stream = found["streams"][0]
        return Video(float(found["format"]["duration"]), stream["width"], stream["height"])
    except (LookupError, ValueError) as error:
        raise NotAVideo(f"{path.name} cannot be read as a video: it has no pictures, or no length") from error


async def ffmpeg(subject: str, *arguments: str, report: Report | None = None) -> None:
    """Run ffmpeg. `subject` is the file that an error names; `report` gets the seconds that are done."""
    # -xerror: damage in the middle of a file is an error, not a result with a hole.
    fixed = ("-nostdin", "-v", "error", "-y", "-xerror", "-nostats", "-progress", "pipe:1")
    await _run("ffmpeg", subject, *fixed, *arguments, report=report)


async def _run(program: str, subject: str, *arguments: str, report: Report | None = None) -> str:
    try:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    except FileNotFoundError as error:
        raise ToolFailed(f"{program} is not installed") from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        output, errors = await asyncio.gather(_followed(process.stdout, report), process.stderr.read())
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        raise _failure(program, subject, code, errors.decode(errors="replace"))
    return output


async def _followed(stdout: asyncio.StreamReader, report: Report | None) -> str:
    """All that it prints. ffmpeg prints its progress as lines of key=value."""
    lines = list[str]()
    async for line in stdout:
        lines.append(line.decode())
        key, _, value = lines[-1].strip().partition("=")
        if report is not None and key == "out_time_us" and value.isdecimal():
            report(int(value) / _MICROSECONDS)
    return "".join(lines)


def _failure(program: str, subject: str, code: int, errors: str) -> Exception:
    if code < 0:
        return ToolFailed(f"{program} was ended by signal {-code} while it read {subject}")
    if _FULL_DISK in errors:
        return ToolFailed(f"{program}: {_FULL_DISK}")
    lines = errors.strip().splitlines() or [f"exit code {code}"]
    return NotAVideo(f"{subject} cannot be read as a video: {lines[0][:_SHOWN]}")
