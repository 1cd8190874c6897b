"""Sealed secrets as a store has them, `s1.KEY.BODY`: which key each needs, and which keys are missing."""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from pitboss.model.resource import Resource, Sealed
from pitboss.model.text import counted, listed

VERSION = "s1"
_SHOWN = 5


class MissingKey(msgspec.Struct, frozen=True, order=True):
    """A key that a process lacks, and how many enabled members of a pool are sealed with it."""

    pool: str
    key: str
    members: int


def key_of(sealed: Sealed) -> str | None:
    """The name of its key; None if the text is not of this form."""
    version, _, rest = sealed.partition(".")
    name, dot, _ = rest.partition(".")
    return name if version == VERSION and dot else None


def keys_of(secrets: Iterable[Sealed]) -> set[str]:
    """The keys that opening all these secrets needs."""
    return {key for sealed in secrets if (key := key_of(sealed)) is not None}


def sealing_keys(members: Iterable[Resource], *, disabled: bool = False) -> tuple[MissingKey, ...]:
    """Every key that enabled members (or all) are sealed with, by pool, as if it were missing."""
    chosen = [one for one in members if one.enabled or disabled]
    counts = Counter((one.pool, key) for one in chosen for key in keys_of(one.secrets.values()))
    return tuple(sorted(MissingKey(pool, key, n) for (pool, key), n in counts.items()))


def missing(needed: Iterable[MissingKey], known: Collection[str]) -> tuple[MissingKey, ...]:
    return tuple(one for one in needed if one.key not in known)


def told(lacking: Iterable[MissingKey]) -> str:
    """Keys and pools in words: "the key 3f2a91bc (5 members of proxies)"."""
    by_key: dict[str, list[str]] = {}
    for one in lacking:
        by_key.setdefault(one.key, []).append(f"{counted(one.members, 'member')} of {one.pool}")
    parts = [f"{key} ({listed(pools, _SHOWN)})" for key, pools in by_key.items()]
    return f"the {'key' if len(parts) == 1 else 'keys'} {listed(parts, _SHOWN)}"
