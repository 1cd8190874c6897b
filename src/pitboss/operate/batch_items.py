"""The items of a batch from text: JSON Lines, or CSV whose header names the parameters."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pitboss.client.schema import checker
from pitboss.model.canonical import Json, from_json
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import HandlerInfo

FORMATS = ("auto", "jsonl", "csv")
_SHOWN_FAULTS = 5
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_Row = tuple[int, dict[str, Any]]


def parse_items(text: str, form: str, handler: HandlerInfo, source: str) -> list[Json]:
    """The checked params of every item. `source` names the text in errors. If some items do not fit the handler, the
    error names all of them."""
    if form not in FORMATS:
        raise InvalidInput(
            f"{form!r:.40} is not a format", why=f"the formats are {', '.join(FORMATS)}", fix="leave --format out"
        )
    if form == "auto":
        form = "csv" if source.endswith(".csv") or not text.lstrip().startswith("{") else "jsonl"
    rows = list(_csv(text, handler) if form == "csv" else _json_lines(text, source))
    if not rows:
        raise InvalidInput(
            f"{source} has no items", why="a batch without items ends at once", fix="write one item per line"
        )
    return _checked(rows, handler, source)


def _checked(rows: Sequence[_Row], handler: HandlerInfo, source: str) -> list[Json]:
    check = checker(handler)
    found: list[Json] = []
    faults: list[str] = []
    for line, params in rows:
        try:
            found.append(check(params))
        except InvalidInput as error:
            faults.append(f"line {line}: {error.why}")
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS:,} more" if len(faults) > _SHOWN_FAULTS else ""
        raise InvalidInput(
            f'{len(faults):,} of {len(rows):,} items in {source} do not fit task "{handler.name}"',
            why="; ".join(faults[:_SHOWN_FAULTS]) + more,
            fix="correct these lines and repeat; nothing was stored",
        )
    return found


def _json_lines(text: str, source: str) -> Iterator[_Row]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise _unreadable(source, number, str(error)) from error
        if not isinstance(found, dict):
            raise _unreadable(source, number, "it is not an object with the parameters by name")
        yield number, found


def _csv(text: str, handler: HandlerInfo) -> Iterator[_Row]:
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
    """The cell as the parameter's type, where the conversion is obvious; otherwise text, which the schema refuses."""
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


def _unreadable(source: str, number: int, why: str) -> InvalidInput:
    return InvalidInput(
        f"line {number} of {source} is not an item",
        why=why,
        fix="""write one JSON object per line, as in {"url": "…"}, or CSV with a header; nothing was stored""",
    )
