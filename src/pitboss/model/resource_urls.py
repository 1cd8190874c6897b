"""Credentials that stand in the URLs of a member's fields: fields are open to everybody, so they must not stay there.

Refusals never say what stands in a field: it may be a password.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pitboss.model.errors import InvalidInput

# User and password before an @. Digits up to a slash are a port, and the @ behind them is part of the path.
_WITH_PASSWORD = re.compile(r"://[^\s/?#@:\[]*:(?!\d+[/?#])[^\s@]+@")
_END_OF_AUTHORITY = re.compile(r"[/?#]")


class Parted(NamedTuple):
    """Fields that may be open, and the secrets that stood in them or beside them. Its text shows neither."""

    fields: dict[str, Any]
    secrets: dict[str, str]

    def __repr__(self) -> str:
        return f"<Parted: {len(self.fields)} fields, {len(self.secrets)} secrets>"


def parted(fields: Mapping[str, Any], secrets: Mapping[str, str], whose: str) -> Parted:
    """User and password of the field `url` as secrets; a password in the URL of any other field is refused."""
    kept, closed = dict(fields), dict(secrets)
    url = kept.get("url")
    if isinstance(url, str) and "@" in url:
        kept["url"], found = _without_credentials(url, whose)
        for name, value in found.items():
            if str(closed.get(name, kept.get(name, value))) != value:
                raise _told_twice(name, whose)
            if name not in kept:
                closed[name] = value
    for name, value in kept.items():
        if any(_WITH_PASSWORD.search(text) for text in _texts(value)):
            raise _open_password(name, whose)
    return Parted(kept, closed)


def _without_credentials(url: str, whose: str) -> tuple[str, dict[str, str]]:
    scheme, _, rest = url.partition("://") if "://" in url else ("http", "", url)
    authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
    if "@" not in authority and not _WITH_PASSWORD.search(f"://{rest}"):
        return url, {}
    # By hand: a password may hold signs that a strict parser takes for the end of the authority.
    credentials, _, place = rest.rpartition("@")
    if not _is_place(place) or ("@" in authority and len(credentials) >= len(authority)):
        raise _unclear(whose)
    user, _, password = credentials.partition(":")
    found = {"user": unquote(user), "password": unquote(password)}
    return f"{scheme}://{place}", {name: value for name, value in found.items() if value}


def _is_place(place: str) -> bool:
    try:
        parts = urlsplit(f"//{place}")
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _unclear(whose: str) -> InvalidInput:
    return InvalidInput(
        f'the field "url" of {whose} cannot be taken apart',
        why="it is not clear where its password ends and its address begins",
        fix='write @, / and : of the password as %40, %2F and %3A, or hand it over apart: secrets={"password": …}',
    )


def _told_twice(name: str, whose: str) -> InvalidInput:
    return InvalidInput(
        f"the {name} of {whose} is told twice",
        why="the one in its url differs from the one beside it",
        fix="leave one of them out",
    )


def _open_password(name: str, whose: str) -> InvalidInput:
    return InvalidInput(
        f'the field "{name}" of {whose} is a URL with a password',
        why="fields are stored and shown in the clear",
        fix='hand the whole URL over as a secret: secrets={"…": …}; only the field "url" is taken apart by itself',
    )
