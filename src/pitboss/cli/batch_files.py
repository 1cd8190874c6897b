"""Files with the items of a batch: JSON Lines, or CSV whose header names the parameters."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import HandlerInfo

_FORMATS = ("auto", "jsonl", "csv")
_SHOWN_FAULTS = 5
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
Row = tuple[int, dict[str, Any]]


def read_items(path: str, form: str, handler: HandlerInfo) -> list[Row]:
    """The parameters of every item, each with the line that it stands in. `-` is stdin."""
    if form not in _FORMATS:
        raise InvalidInput(
            f"{form!r:.40} is not a format", why=f"the formats are {', '.join(_FORMATS)}", fix="leave --format out"
        )
    text = _text(path)
    if form == "auto":
        form = "csv" if path.endswith(".csv") or not text.lstrip().startswith("{") else "jsonl"
    rows = list(_csv(text, handler) if form == "csv" else _json_lines(text, path))
    if not rows:
        raise InvalidInput(
            f"{_said(path)} has no items", why="a batch without items is over at once", fix="write one item per line"
        )
    return rows


def checked_items(rows: list[Row], check: Callable[[Mapping[str, Any]], str], path: str) -> list[str]:
    """The canonical params of each row; if some do not fit, all of them are named and nothing is stored."""
    found: list[str] = []
    faults: list[str] = []
    for line, params in rows:
        try:
            found.append(check(params))
        except InvalidInput as error:
            faults.append(f"line {line}: {error.why}")
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS:,} more" if len(faults) > _SHOWN_FAULTS else ""
        raise InvalidInput(
            f"{len(faults):,} of {len(rows):,} items in {_said(path)} do not fit the task",
            why="; ".join(faults[:_SHOWN_FAULTS]) + more,
            fix="correct these lines and repeat; nothing was stored",
        )
    return found


def _text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{_said(path)} cannot be read",
            why=getattr(error, "strerror", None) or "it is not text in UTF-8",
            fix="check the path and the rights of the file; - reads stdin",
        ) from error


def _json_lines(text: str, path: str) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise _unreadable(path, number, str(error)) from error
        if not isinstance(found, dict):
            raise _unreadable(path, number, "it is not an object with the parameters by name")
        yield number, found


def _csv(text: str, handler: HandlerInfo) -> Iterator[Row]:
    import csv
    import io

    reader = csv.reader(io.StringIO(text, newline=""))
    header = [column.strip() for column in next(reader, [])]
    known = from_json(handler.schema).get("properties", {})
    unknown = [column for column in header if known and column not in known]
    if unknown:
        raise InvalidInput(
            f'task "{handler.name}" has no parameter {", ".join(unknown)[:80]}',
            why=f"the first line of CSV names the parameters, which are {', '.join(known)}",
            fix="correct the header, or use JSON Lines",
        )
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            why = f"it has {len(cells)} columns, and the header has {len(header)}"
            raise _unreadable("the CSV", reader.line_num, why)
        pairs = zip(header, cells, strict=True)
        yield reader.line_num, {key: _value(cell, known.get(key, {})) for key, cell in pairs if cell != ""}


def _value(cell: str, schema: Mapping[str, Any]) -> Any:
    """A cell is text; what the parameter wants to be is made of it where that is plain."""
    kinds = {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))}
    if "string" in kinds or kinds == {None}:
        return cell
    word = cell.strip().lower()
    if "boolean" in kinds and word in _TRUTH:
        return _TRUTH[word]
    try:
        return msgspec.json.decode(cell)
    except msgspec.DecodeError:
        return cell


def _unreadable(path: str, number: int, why: str) -> InvalidInput:
    return InvalidInput(
        f"line {number} of {_said(path)} is not an item",
        why=why,
        fix="""write one JSON object per line, as in {"url": "…"}, or CSV with a header; nothing was stored""",
    )


def _said(path: str) -> str:
    return "stdin" if path == "-" else path
