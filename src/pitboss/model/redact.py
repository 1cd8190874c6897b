"""Keeps secrets that were opened out of everything that a process says: errors, notes, logs."""

from base64 import b64encode
from itertools import count
from urllib.parse import quote

import msgspec

MASK = "***"
# Shorter ones are in half of all words: masking them would tell more than it hides.
SHORTEST = 4
_MOST = 2000


class Redactor:
    """Knows the values that must not be seen, in the forms in which they travel. The last two thousand are kept.

    Threads may add and hide at the same time: what was added is hidden from then on.
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
        # One that is opened again becomes the newest, before the oldest have to go.
        self._forms.pop(value, None)
        self._forms[value] = _forms(value)
        for old in list(self._forms)[: max(0, len(self._forms) - _MOST)]:
            self._forms.pop(old, None)
        self._version = next(self._counter)

    def add_pair(self, user: str, password: str) -> None:
        """Also as the header of basic authentication carries them."""
        self.add(b64encode(f"{user}:{password}".encode()).decode())

    def hidden(self, text: str) -> str:
        """The text without them."""
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
            # The version is read before the values: what comes in meanwhile has another one.
            version = self._version
            forms = {form for one in list(self._forms.values()) for form in one}
            found = tuple(sorted(forms, key=len, reverse=True))
            self._sorted = version, found
        return found


def _forms(value: str) -> tuple[str, ...]:
    """As it is, as a part of a URL, and within the quotes of JSON and of Python."""
    in_json = msgspec.json.encode(value).decode()[1:-1]
    return tuple({value, quote(value, safe=""), quote(value), in_json, repr(value)[1:-1], repr(in_json)[1:-1]})
