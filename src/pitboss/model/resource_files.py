"""Files with members of a pool: lines of `host:port:user:password`, URLs, or CSV with a header.

Refusals name the line and never quote it: it may hold a password.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.model.resource_urls import is_place, split_url

SECRET_NAMES = ("password", "pass", "token", "secret", "cookie", "session", "key", "api_key", "apikey")
_SAME = {"pass": "password", "username": "user", "ip": "host", "apikey": "api_key", "label": "labels"}
_KNOWN_HEADERS = ("name", "url", "host", "ip")
_PREFIX = "secret."
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")
_BETWEEN_LABELS = re.compile(r"[;|\s]+")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_AND_PORT = re.compile(r"[^\s:/@]+:\d{1,5}")
_FROM_THE_LEFT = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+):(?P<port>\d+)"
    r"(?::(?P<rest>(?P<user>[^:]*)(?::(?P<password>.*))?))?\Z",
    re.DOTALL,
)
_ENDS_IN_ADDRESS = re.compile(r"@[^\s@:/]+:\d+\Z")
_AS_URL = (
    "write host:port:user:password, or http://user:password@host:port with @, : and / of the password as %40, %3A "
    "and %2F"
)
_BRACKETS = "write [2001:db8::1]:8080, or [2001:db8::1]:8080:user:password"
_MOST_PORTS = 65_535
_LONGEST_NAME = 128


class Row(NamedTuple):
    """A member as the file describes it. Its repr does not show the secrets."""

    name: str
    fields: dict[str, Any]
    secrets: dict[str, str]
    labels: tuple[str, ...] = ()
    weight: int = 100
    line: int = 0

    def __repr__(self) -> str:
        return f"<Row {self.name} of line {self.line}>"


def read_rows(text: str, where: str = "the file") -> list[Row]:
    """Every member of a file; refuses the whole file if one line is wrong."""
    lines = [(number, line.strip()) for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise InvalidInput(f"{where} has no members", why="it is empty but for comments", fix="write one per line")
    rows = list(_from_csv(lines, where)) if _is_header(lines[0][1]) else [_from_line(one, where) for one in lines]
    return _named_apart(rows, where)


def _is_header(line: str) -> bool:
    columns = {column.strip().lower() for column in line.split(",")}
    return not columns.isdisjoint(_KNOWN_HEADERS) and ":" not in line


def read_address(text: str, where: str) -> Row:
    """The member at one address: `host:port:user:password`, or a URL."""
    return _from_address(text.strip(), 1, where)


def hides_password(text: str) -> bool:
    """Whether this is, or may be, an address with a password. Such a text is never shown, and never a name."""
    if "://" in text or "@" in text:
        return "@" in text
    found = None if _is_ipv6(text) else _FROM_THE_LEFT.match(text)
    return found is not None and bool(found["password"])


def is_address(text: str) -> bool:
    """Whether a text given as a name is an address: a URL, or a host with a port and perhaps credentials."""
    return "://" in text or hides_password(text) or _HOST_AND_PORT.fullmatch(text) is not None


def checked_member_name(name: str) -> str:
    """The name itself. An address with a password is refused unquoted: names are shown to all."""
    if hides_password(name):
        raise InvalidInput(
            "a member's name looks like an address with a password",
            why="names are stored and shown in the clear",
            fix="give the member a short name, its address as a field, and its password as a secret",
        )
    return checked_name(name, "resource")


def _from_line(numbered: tuple[int, str], where: str) -> Row:
    number, line = numbered
    # A comment begins after a space; a password may contain the sign itself.
    address, *comment = re.split(r"\s+#", line, maxsplit=1)
    if comment and (hides_password(address) or hides_password(line)):
        raise _refused(
            number,
            where,
            "it is not clear whether a comment follows, or a part of the password",
            "put the comment on a line of its own; write # and spaces of a password as %23 and %20 in a URL",
        )
    return _from_address(address.strip(), number, where)


def _from_address(text: str, number: int, where: str) -> Row:
    if _SCHEME.match(text):
        return _from_url(text, number, where)
    if _is_ipv6(text):
        raise _refused(number, where, "an IPv6 address without brackets looks like host:port:user", _BRACKETS)
    # From the left: a password may contain any sign, an @ and a colon among them.
    found = _FROM_THE_LEFT.match(text)
    if found is not None:
        if _names_another_host(found["host"], found["rest"] or ""):
            raise _refused(number, where, "either end of it can be its address", _AS_URL)
        return _row(found["host"], found["port"], found["user"] or "", found["password"] or "", {}, number, where)
    if "@" in text:
        return _from_pair(text, number, where)
    host, _, port = text.partition(":")
    return _row(host, port, "", "", {}, number, where)


def _from_pair(text: str, number: int, where: str) -> Row:
    """`user:password@host:port`, as far as it has only one meaning."""
    credentials, _, place = text.rpartition("@")
    password = credentials.partition(":")[2]
    if "@" in credentials or ":" in password or password.isdecimal() or not is_place(place):
        raise _refused(number, where, "it is not clear which part of it is the password", _AS_URL)
    return _from_url(f"http://{text}", number, where)


def _names_another_host(host: str, rest: str) -> bool:
    """Whether `anna:80:x@h.example:80` may be meant as user, password and address: its "host" is only a word."""
    return "." not in host and "[" not in host and bool(_ENDS_IN_ADDRESS.search(rest))


def _is_ipv6(text: str) -> bool:
    def is_one(part: str) -> bool:
        try:
            return bool(IPv6Address(part))
        except ValueError:
            return False

    return is_one(text) or is_one(text.rpartition(":")[0])


def _from_url(url: str, number: int, where: str) -> Row:
    split = split_url(url)
    if split is None or "@" in split.place:
        raise _refused(number, where, "it is not clear where its password ends and its address begins", _AS_URL)
    try:
        parts = urlsplit(f"//{split.place}")
        host, port = parts.hostname or "", "" if parts.port is None else str(parts.port)
    except ValueError:
        raise _refused(number, where, "the address behind the @ cannot be read") from None
    user, _, password = (split.credentials or "").partition(":")
    return _row(host, port, unquote(user), unquote(password), {"scheme": split.scheme.lower()}, number, where)


def _row(host: str, port: str, user: str, password: str, fields: Mapping[str, Any], number: int, where: str) -> Row:
    found: dict[str, Any] = {**fields, "host": _checked_host(host, number, where)}
    if port:
        found["port"] = _checked_port(port, number, where)
    secrets = {"password": password} if password else {}
    if user and password:
        found["user"] = user
    elif user:
        # Without a password it is a secret key.
        secrets["user"] = user
    return Row(_name(found), found, secrets, line=number)


def _from_csv(lines: list[tuple[int, str]], where: str) -> Iterator[Row]:
    header, *rest = csv.reader(line for _, line in lines)
    columns = [_SAME.get(column.strip().lower(), column.strip().lower()) for column in header]
    if len(set(columns)) != len(columns):
        raise _refused(lines[0][0], where, "two columns have the same name")
    for (number, _), cells in zip(lines[1:], rest, strict=True):
        if len(cells) != len(columns):
            raise _refused(number, where, f"it has {len(cells)} columns, and the header has {len(columns)}")
        yield _from_cells({key: cell.strip() for key, cell in zip(columns, cells, strict=True)}, number, where)


def _from_cells(cells: dict[str, str], number: int, where: str) -> Row:
    cells = {key: cell for key, cell in cells.items() if cell}
    name, labels, weight = cells.pop("name", ""), cells.pop("labels", ""), cells.pop("weight", "100")
    if not weight.isdecimal() or not int(weight):
        raise _refused(number, where, "its weight is not a whole number above zero")
    fields, secrets = _address(cells, number, where)
    for key, cell in cells.items():
        if key in SECRET_NAMES or key.startswith(_PREFIX):
            secrets[key.removeprefix(_PREFIX)] = cell
        else:
            fields[key] = cell
    if not name and "host" not in fields:
        raise _refused(number, where, "it has neither a name nor a host")
    chosen = tuple(label for label in _BETWEEN_LABELS.split(labels) if label)
    return Row(name or _name(fields), fields, secrets, chosen, int(weight), number)


def _address(cells: dict[str, str], number: int, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields and secrets of url, or of host and port; removes these from the cells."""
    url = cells.pop("url", "")
    if url:
        row = _from_line((number, url), where)
        return dict(row.fields), dict(row.secrets)
    found: dict[str, Any] = {}
    if "host" in cells:
        found["host"] = _checked_host(cells.pop("host"), number, where)
    if "port" in cells:
        found["port"] = _checked_port(cells.pop("port"), number, where)
    return found, {}


def _named_apart(rows: list[Row], where: str) -> list[Row]:
    """Several accounts at one address are several members."""
    count: dict[str, int] = {}
    for row in rows:
        count[row.name] = count.get(row.name, 0) + 1
    named = [row._replace(name=_with_user(row)) if count[row.name] > 1 else row for row in rows]
    seen: dict[str, int] = {}
    for row in named:
        first = seen.setdefault(row.name, row.line)
        if first != row.line:
            raise _refused(row.line, where, f"it names the same member as line {first}")
    return named


def _with_user(row: Row) -> str:
    user = row.fields.get("user")
    return _clean(f"{row.name}:{user}") if user else row.name


def _name(fields: Mapping[str, Any]) -> str:
    port = fields.get("port")
    return _clean(f"{fields['host']}:{port}" if port else str(fields["host"]))


def _clean(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name).lstrip(".:-")[:_LONGEST_NAME]


def _checked_host(host: str, number: int, where: str) -> str:
    host = host.strip("[]")
    if not _HOST.match(host) and not (":" in host and re.fullmatch(r"[0-9A-Fa-f:.]+", host)):
        raise _refused(number, where, "it does not begin with a host's name or address")
    return host


def _checked_port(port: str, number: int, where: str) -> int:
    if not port.isdecimal() or not 0 < int(port) <= _MOST_PORTS:
        raise _refused(number, where, "its port is not a number from 1 to 65535")
    return int(port)


def _refused(number: int, where: str, why: str, fix: str = "") -> InvalidInput:
    usual = (
        "write host:port, host:port:user:password, a URL such as http://user:password@host:port, "
        "or CSV with a header (name, url or host, port, user, password, labels)"
    )
    return InvalidInput(f"line {number} of {where} is not a member", why=why, fix=f"{fix or usual}; nothing was added")
