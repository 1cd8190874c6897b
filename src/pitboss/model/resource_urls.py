"""Credentials in the URLs of a member's fields: fields are shown to all users, so credentials must not stay there.

Refusals never quote a field: it may hold a password.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pitboss.model.errors import InvalidInput

# User and password before an @. Digits up to a slash are a port, and an @ after that is part of the path.
_WITH_PASSWORD = re.compile(r"://[^\s/?#@:\[]*:(?!\d+[/?#])[^\s@]+@")
_HOST_AND_PORT = re.compile(r"[^\s/?#@]+:\d+\Z")
_END_OF_AUTHORITY = re.compile(r"[/?#]")


class Split(NamedTuple):
    """A URL in its three parts; `credentials` is None if it has none."""

    scheme: str
    credentials: str | None
    place: str


class Parted(NamedTuple):
    """Fields without credentials, and the secrets that were found in them or given. Its repr shows neither."""

    fields: dict[str, Any]
    secrets: dict[str, str]

    def __repr__(self) -> str:
        return f"<Parted: {len(self.fields)} fields, {len(self.secrets)} secrets>"


def parted(fields: Mapping[str, Any], secrets: Mapping[str, str], whose: str) -> Parted:
    """Move user and password of the field `url` to the secrets; refuse a password in the URL of any other field."""
    kept, closed = dict(fields), dict(secrets)
    url = kept.get("url")
    if isinstance(url, str) and "@" in url:
        kept["url"], found = _without_credentials(url, whose)
        for name, value in found.items():
            if str(closed.get(name, kept.get(name, value))) != value:
                raise _given_twice(name, whose)
            if name not in kept:
                closed[name] = value
    for name, value in kept.items():
        if any(_WITH_PASSWORD.search(text) for text in _texts(value)):
            raise _open_password(name, whose)
    return Parted(kept, closed)


def split_url(url: str) -> Split | None:
    """Where the password of a URL ends and its address begins; None if that is not clear."""
    scheme, _, rest = url.partition("://") if "://" in url else ("http", "", url)
    authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
    # Parsed here: a password may contain signs that a strict parser takes for the end of the authority.
    credentials, at, place = rest.rpartition("@")
    if not at:
        return Split(scheme, None, rest)
    if "@" not in authority and not _WITH_PASSWORD.search(f"://{rest}"):
        # An @ in the path, unless an address follows it: then the "port" may be the beginning of a password.
        return None if _HOST_AND_PORT.match(place) else Split(scheme, None, rest)
    if not is_place(place) or ("@" in authority and len(credentials) >= len(authority)):
        return None
    return Split(scheme, credentials, place)


def is_place(place: str) -> bool:
    """Whether this can be the address in a URL: a host, perhaps with a port and a path."""
    try:
        parts = urlsplit(f"//{place}")
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _without_credentials(url: str, whose: str) -> tuple[str, dict[str, str]]:
    split = split_url(url)
    if split is None:
        raise _unclear(whose)
    if split.credentials is None:
        return url, {}
    user, _, password = split.credentials.partition(":")
    found = {"user": unquote(user), "password": unquote(password)}
    return f"{split.scheme}://{split.place}", {name: value for name, value in found.items() if value}


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
        f'the field "url" of {whose} cannot be split into address and password',
        why="it is not clear where its password ends and its address begins",
        fix='write @, / and : of the password as %40, %2F and %3A, or pass it separately: secrets={"password": …}',
    )


def _given_twice(name: str, whose: str) -> InvalidInput:
    return InvalidInput(
        f"the {name} of {whose} is given twice",
        why="the one in its url differs from the one beside it",
        fix="leave one of them out",
    )


def _open_password(name: str, whose: str) -> InvalidInput:
    return InvalidInput(
        f'the field "{name}" of {whose} is a URL with a password',
        why="fields are stored and shown in the clear",
        fix='pass the whole URL as a secret: secrets={"…": …}; only the field "url" is split automatically',
    )
