"""Checks that no linter makes: length, whitespace, machine paths and waivers, in every file of the repository."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
STRICT_ROOMS = tuple(f"src/pitboss/{room}/" for room in ("model", "engines", "dispatch", "client", "manager", "worker"))
WAIVER = re.compile(r"\bnoqa\b|type:\s*ignore|pragma:\s*no cover")
# A path of one machine does not work on another. A segment inside a URL or a relative path is fine.
MACHINE_PATH = re.compile(r"(?<![\w.}-])/(?:work|root|home/\w+)/")


def repository_files() -> list[str]:
    """Tracked files and new ones that git would add; not ignored ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def line_faults(name: str, line: str) -> Iterator[str]:
    if line != line.rstrip():
        yield "trailing whitespace"
    if MACHINE_PATH.search(line):
        yield "absolute path of one machine"
    if name.startswith(STRICT_ROOMS) and WAIVER.search(line):
        yield "waiver of a check: fix the cause, this package allows none"


def file_faults(name: str, text: str) -> Iterator[str]:
    if name.startswith("src/") and not name.endswith(".css") and text.count("\n") > MAX_LINES:
        yield f"longer than {MAX_LINES} lines: split it"
    if name.endswith((".sql", ".lua")) and not text.strip():
        yield "empty statement file"
    if text and not text.endswith("\n"):
        yield "no newline at the end"


def faults(name: str) -> Iterator[str]:
    content = (ROOT / name).read_bytes()
    if b"\0" in content:
        return  # a binary file, such as a picture
    text = content.decode("utf-8")
    yield from (f"{name}: {fault}" for fault in file_faults(name, text))
    for number, line in enumerate(text.split("\n"), start=1):
        yield from (f"{name}:{number}: {fault}" for fault in line_faults(name, line))


def main() -> int:
    names = repository_files()
    found = [fault for name in names for fault in faults(name)]
    print("\n".join(found) if found else f"Files: {len(names)} in order.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
