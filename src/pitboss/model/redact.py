"""Keeps secrets that were opened out of everything that a process says: errors, notes, logs."""

from base64 import b64encode
from urllib.parse import quote

import msgspec

MASK = "***"
# Shorter ones are in half of all words: masking them would tell more than it hides.
SHORTEST = 4
_MOST = 2000


class Redactor:
    """Knows the values that must not be seen, in the forms in which they travel. The last two thousand are kept."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        self._longest_first: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._forms)} values>"

    def add(self, value: str) -> None:
        """Mask this text from now on."""
        if len(value) < SHORTEST or value in self._forms:
            return
        forms = {**self._forms, value: _forms(value)}
        while len(forms) > _MOST:
            del forms[next(iter(forms))]
        self._forms = forms
        self._longest_first = tuple(sorted({form for one in forms.values() for form in one}, key=len, reverse=True))

    def add_pair(self, user: str, password: str) -> None:
        """Also as the header of basic authentication carries them."""
        self.add(b64encode(f"{user}:{password}".encode()).decode())

    def hidden(self, text: str) -> str:
        """The text without them."""
        for form in self._longest_first:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def hidden_bytes(self, line: bytes) -> bytes:
        return (
            self.hidden(line.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass") if self._forms else line
        )


def _forms(value: str) -> tuple[str, ...]:
    """As it is, as a part of a URL, and within the quotes of JSON and of Python."""
    in_json = msgspec.json.encode(value).decode()[1:-1]
    return tuple({value, quote(value, safe=""), quote(value), in_json, repr(value)[1:-1], repr(in_json)[1:-1]})
