"""Orders to managers: what is wished stands in the store, and managers, wherever they are, follow it.

A wish is read, changed in part and written back; what others wished of the same pool, and fields of releases that we do
not know, stay. The store has no compare-and-set for wishes: of two orders for one pool in the same moment the later one
wins, and may write back what the other one changed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pitboss.model.desired_state import Wishes

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store


class Wished(NamedTuple):
    """Every wish that holds, as it is written, by key; and what they come to for a pool on a host."""

    written: dict[str, dict[str, Any]]
    sense: Wishes


async def wished(store: "Store") -> Wished:
    found = await store.wishes()
    sense = Wishes()
    sense.take(found)
    return Wished({wish.key: _object(wish.value) for wish in found if wish.value is not None}, sense)


async def order(store: "Store", key: str, written: Mapping[str, Any], **changes: Any) -> None:
    """Change some fields of a wish; None takes a field out, and a wish without fields is withdrawn."""
    after = {name: value for name, value in {**written, **changes}.items() if value is not None}
    if after != dict(written):
        await store.wish(key, msgspec.json.encode(after).decode() if after else None, by=me())


def me() -> str:
    """Who gives the order, for whoever wonders later."""
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"


def _object(text: str) -> dict[str, Any]:
    """What is no object says nothing that we know."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
