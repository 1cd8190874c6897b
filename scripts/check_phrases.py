"""Keep worn phrases out of what people read: comments, docstrings, messages and pages.

Each of them makes a reader stop and ask who or what is meant. Keep the list short: add a phrase only when it has come
back several times, together with the words to write instead.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ = ("src", "docs", "examples", "tests", "benchmarks", "deploy", "*.md")

# phrase -> what to write instead; a space stands for any gap, a line break and its comment mark included
PHRASES: dict[str, str] = {
    "whoever": "name the process or person: the caller, the manager, the operator",
    "(?:some|any)body": "name the process or person: a caller, another manager, an operator",
    "nobody": "name the subject: no manager, no caller, no task",
    "so many": "give the number, or say 'that many'",
    "seen to": "use the verb itself: handled, checked, done",
    "to be had": "say 'available' or 'free'",
    "came of": "say 'the outcome', 'the result'",
    "stands? in (?:its|the) way": "say what blocks or prevents it",
    "in vain": "say what did not happen: 'timed out', 'got nothing'",
    "(?:is|are) told (?:as|from)": "say 'is shown as', 'is computed from'",
}
PATTERN = re.compile(
    "|".join(rf"(\b{phrase}\b)" for phrase in PHRASES).replace(" ", r"(?:[^\S\n]+|[^\S\n]*\n\W*)"), re.IGNORECASE
)


def texts() -> list[str]:
    """Tracked files and new ones that git would add, in the folders that people read."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *READ]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def worn(name: str, text: str) -> Iterator[str]:
    advice = list(PHRASES.values())
    for found in PATTERN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        phrase = re.sub(r"\W+", " ", found[0])
        yield f"{name}:{line}: worn phrase '{phrase}': {advice[(found.lastindex or 1) - 1]}"


def main() -> int:
    names = texts()
    found = [fault for name in names for fault in worn(name, (ROOT / name).read_bytes().decode("utf-8", "replace"))]
    print("\n".join(found) if found else f"Phrases: none worn in {len(names)} files.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
