"""Canonical JSON: the one form in which params, results and errors are stored, the same on every engine.

UTF-8, no white space, keys sorted. Values that some store cannot hold or would change silently (NaN, infinity, NUL,
lone surrogates, integers over 64 bits, input that is too deep or too long) are refused here, before they reach an
engine.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec

from pitboss.model.errors import InvalidInput

Json = str
Plain = Callable[[object], object]
MAX_BYTES: Final = 1_048_576
MAX_PARAMS_BYTES: Final = 262_144
MAX_DEPTH: Final = 64
_LONG_NUMBER: Final = re.compile(rb"[:,\[]-?\d{19}")
_CONTAINERS: Final = b'{["'
# Every digit as 0 and every opening bracket as [: two searches in that text are faster than a pattern.
_OUTLINE: Final = bytes.maketrans(b"123456789{", b"000000000[")
_NINETEEN: Final = b"0" * 19


def to_json(value: object, *, what: str = "value", max_bytes: int = MAX_BYTES, plain: Plain | None = None) -> Json:
    """The canonical text of a value, or `InvalidInput` that names the place inside it.

    `plain` turns a value of an unknown class into plain data, or raises TypeError.
    """
    try:
        data = _encoder(plain).encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refused(value, what, plain, error) from error
    refuse_length(len(data), what, max_bytes)
    if _suspicious(data):
        _Walk(plain).check(value, what, 0)
    return data.decode()


def refuse_length(size: int, what: str, max_bytes: int = MAX_BYTES) -> None:
    """Refuse a value of at least `size` bytes as JSON."""
    if size > max_bytes:
        raise InvalidInput(
            f"{what} takes {size} bytes as JSON; at most {max_bytes} are allowed",
            why="tasks are rows that are read and written often; large data slows every one of them",
            fix="store the data elsewhere (a file, an object store, a table) and pass its name",
        )


def from_json(text: Json) -> Any:
    """The Python value of canonical text."""
    return msgspec.json.decode(text)


def recoded(text: str | bytes, *, what: str = "value", max_bytes: int = MAX_BYTES) -> Json:
    """Foreign JSON text made canonical; refuses what `to_json` refuses."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{what} is not valid JSON", why=str(error), fix="send one JSON document in UTF-8"
        ) from error
    return to_json(value, what=what, max_bytes=max_bytes)


def printable(text: str, limit: int = 65_536) -> str:
    """Text of an error made storable: NUL and lone surrogates escaped, over-long text cut in the middle.

    Errors are never refused: a task whose error could not be stored would run for ever.
    """
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


@cache
def _encoder(plain: Plain | None) -> msgspec.json.Encoder:
    return msgspec.json.Encoder(order="sorted", enc_hook=plain)


def _suspicious(data: bytes) -> bool:
    # The encoder writes NaN and infinity as null, NUL as \u0000, integers of any length, and shows depth as opening
    # brackets. Text without these signs, which is nearly all text, needs no walk in Python.
    outline = data.translate(_OUTLINE)
    return (
        b"null" in data
        or b"\\u0000" in data
        or outline.count(b"[") > MAX_DEPTH
        or (_NINETEEN in outline and _LONG_NUMBER.search(data) is not None)
        or data[0] not in _CONTAINERS
    )


def _refused(value: object, what: str, plain: Plain | None, error: Exception) -> InvalidInput:
    try:
        _Walk(plain).check(value, what, 0)
    except InvalidInput as precise:
        return precise
    except (RecursionError, ValueError, TypeError):
        pass
    return InvalidInput(
        f"{what} cannot be stored as JSON",
        why=str(error),
        fix="pass JSON types, dataclasses, pydantic models, datetimes, UUIDs or enums",
    )


class _Walk:
    """Looks at every part of a value, to name the place that cannot be stored."""

    def __init__(self, plain: Plain | None) -> None:
        self._plain = plain

    def check(self, value: object, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidInput(
                f"{path:.200} is nested deeper than {MAX_DEPTH} levels",
                why="deep documents cannot be read back by every store and client",
                fix="flatten the data",
            )
        match value:
            case None | bool():
                return
            case str():
                _check_text(value, path)
            case int():
                _check_int(value, path)
            case float():
                _check_float(value, path)
            case dict():
                self._check_dict(value, path, depth)
            case list() | tuple() | set() | frozenset():
                for index, item in enumerate(value):
                    self.check(item, f"{path}[{index}]", depth + 1)
            case _:
                self._check_object(value, path, depth)

    def _check_dict(self, value: dict[Any, Any], path: str, depth: int) -> None:
        for key, item in value.items():
            if isinstance(key, str):
                _check_text(key, f"key {key!r:.40} of {path}")
            self.check(item, f"{path}.{key}", depth + 1)

    def _check_object(self, value: object, path: str, depth: int) -> None:
        try:
            plain = msgspec.to_builtins(value, enc_hook=self._plain)
        except TypeError as error:
            raise InvalidInput(
                f"{path} is a {type(value).__name__}, which has no JSON form",
                why=str(error),
                fix="pass JSON types, dataclasses, pydantic models, datetimes, UUIDs or enums",
            ) from error
        if type(plain) is not type(value):
            self.check(plain, path, depth)


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise InvalidInput(
            f"{path} contains a NUL character",
            why="PostgreSQL cannot store it in text or JSON, so it is refused on every engine alike",
            fix="remove it, or pass the bytes as base64 text",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path} contains a lone surrogate",
            why="it has no UTF-8 form",
            fix='clean the text, for instance text.encode("utf-8", "replace").decode()',
        ) from error


def _check_float(value: float, path: str) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidInput(f"{path} is {value}", why="JSON has no NaN and no infinity", fix="pass None or a text")


def _check_int(value: int, path: str) -> None:
    if not -(2**63) <= value < 2**64:
        raise InvalidInput(
            f"{path} is an integer outside 64 bits",
            why="stores and clients in other languages would change it silently",
            fix="pass it as text",
        )
