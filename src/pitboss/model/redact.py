"""Keeps opened secrets out of all text that a process writes: errors, notes, logs."""

from base64 import b64encode
from itertools import count
from urllib.parse import quote

import msgspec

MASK = "***"
# Shorter values occur in many words: masking them would reveal more than it hides.
SHORTEST = 4
_MOST = 2000


class Redactor:
    """Holds the values to mask, in all forms in which they may appear. The last two thousand are kept.

    Threads may add and mask at the same time: a value is masked from the moment it was added.
    """

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        self._counter = count()
        self._version = next(self._counter)
        self._sorted: tuple[int, tuple[str, ...]] = self._version, ()

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._forms)} values>"

    def add(self, value: str) -> None:
        """Mask this text from now on."""
        if len(value) < SHORTEST or (value in self._forms and len(self._forms) < _MOST // 2):
            return
        # A value that is opened again becomes the newest, before the oldest are dropped.
        self._forms.pop(value, None)
        self._forms[value] = _forms(value)
        for old in list(self._forms)[: max(0, len(self._forms) - _MOST)]:
            self._forms.pop(old, None)
        self._version = next(self._counter)

    def add_pair(self, user: str, password: str) -> None:
        """Mask both also in the form of a basic authentication header."""
        self.add(b64encode(f"{user}:{password}".encode()).decode())

    def hidden(self, text: str) -> str:
        """The text with all these values masked."""
        for form in self._longest_first():
            if form in text:
                text = text.replace(form, MASK)
        return text

    def hidden_bytes(self, line: bytes) -> bytes:
        return (
            self.hidden(line.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass") if self._forms else line
        )

    def _longest_first(self) -> tuple[str, ...]:
        version, found = self._sorted
        if version != self._version:
            # The version is read before the values: a value that is added meanwhile changes it.
            version = self._version
            forms = {form for one in list(self._forms.values()) for form in one}
            found = tuple(sorted(forms, key=len, reverse=True))
            self._sorted = version, found
        return found


def _forms(value: str) -> tuple[str, ...]:
    """As it is, as a part of a URL, and within the quotes of JSON and of Python."""
    in_json = msgspec.json.encode(value).decode()[1:-1]
    return tuple({value, quote(value, safe=""), quote(value), in_json, repr(value)[1:-1], repr(in_json)[1:-1]})
