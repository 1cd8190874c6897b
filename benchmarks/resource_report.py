"""The page with all measurements of resources: each benchmark writes its own part and keeps the others."""

import re
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.circumstances import machine, servers

PAGE = Path(__file__).with_name("resources.md")
_TITLE = "# Resources: what was measured\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(part: str, title: str, text: str) -> None:
    """Replace the part on the page, with the date and the machine."""
    page = PAGE.read_text() if PAGE.exists() else _TITLE
    facts = f"{datetime.now(UTC):%Y-%m-%d}. {machine()}; {servers()}."
    body = f"<!-- {part} -->\n## {title}\n\n{facts}\n\n{text.strip()}\n<!-- end of {part} -->\n"
    there = re.compile(rf"<!-- {part} -->\n.*?<!-- end of {part} -->\n", re.DOTALL)
    PAGE.write_text(there.sub(lambda _: body, page) if there.search(page) else f"{page}\n{body}")
