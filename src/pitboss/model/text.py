"""Text as people read it: numbers with their nouns, short lists, and text from a store made safe to show."""

import re
from collections.abc import Collection, Iterable

HIDDEN = "***"
_LAST_BYTE = 0xFF
_PASSWORD_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&#]*")
# Also marks that turn the direction of text, and so show "gpj.exe" as "exe.jpg", and the line breaks of Unicode.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Text from a store made safe for terminals and pages: control characters are shown, not obeyed."""
    return text if text.isprintable() else _CONTROL.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    # Both can be read again by Python, the second also by JSON.
    return f"\\x{code:02x}" if code <= _LAST_BYTE else f"\\u{code:04x}"


def one_line(text: str, limit: int = 200) -> str:
    """The first line, cut to the limit."""
    line = clean(text.strip().partition("\n")[0])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def counted(number: int, noun: str, plural: str | None = None, *, more: bool = False) -> str:
    """ "1 task", "2,000 tasks", "2,000+ tasks" if there may be more."""
    return f"{number:,} {noun}" if number == 1 and not more else f"{number:,}{'+' * more} {plural or f'{noun}s'}"


def listed(names: Collection[str], most: int = 5) -> str:
    """ "a, b, c and 2 more"."""
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def ranges(numbers: Iterable[int]) -> str:
    """ "0-9" or "0, 2, 5-7": the numbers in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def masked(url: str) -> str:
    """A URL without its password. That ends at the last "@", wherever it is: a password may have characters that should
    have been percent-encoded."""
    start, slashes, rest = url.partition("://")
    user_info, _, address = rest.rpartition("@")
    if ":" in user_info:
        rest = f"{user_info.partition(':')[0]}:{HIDDEN}@{address}"
    return _PASSWORD_OPTION.sub(rf"\1{HIDDEN}", f"{start}{slashes}{rest}")
