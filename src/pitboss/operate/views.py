"""Saved views: filters of tasks under a name, of one person or shared by all.

They are values beside the desired state: one for each owner, so that two people cannot overwrite each other's.
"""

from typing import Any

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import parsed
from pitboss.model.text import one_line
from pitboss.operate.lookup import did_you_mean

LONGEST_NAME, LONGEST_FILTER, MOST = 60, 500, 50
_KEY = "views/"


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is the name of a key or user; empty: shared by all."""

    name: str
    filter: str
    owner: str = ""

    @property
    def shared(self) -> bool:
        return not self.owner


async def list_views(store: Store, owner: str | None = None) -> list[SavedView]:
    """By name, the shared ones first: those of everyone, or the shared ones and those of this owner."""
    found = [
        SavedView(name=name, filter=text, owner=whose)
        for wish in await store.wishes()
        if wish.value is not None and wish.key.startswith(_KEY)
        if (whose := wish.key.removeprefix(_KEY)) in ("", owner) or owner is None
        for name, text in _decoded(wish.value).items()
    ]
    return sorted(found, key=lambda one: (one.owner, one.name.casefold()))


async def save_view(store: Store, name: str, text: str, *, owner: str = "", by: str) -> SavedView:
    """Save a filter under this name. One of the same name and owner is replaced."""
    name, text = name.strip(), text.strip()
    if not name or len(name) > LONGEST_NAME or one_line(name) != name:
        raise InvalidInput(
            f"{name!r:.80} cannot name a view",
            why=f"a name is one line of 1 to {LONGEST_NAME} characters",
            fix="choose a shorter name",
        )
    if not text or len(text) > LONGEST_FILTER:
        raise InvalidInput(
            "this filter cannot be saved",
            why=f"a filter has 1 to {LONGEST_FILTER} characters",
            fix='save one such as "state:failed queue:mail"',
        )
    parsed(text)
    known = await _views_of(store, owner)
    if name not in known and len(known) >= MOST:
        raise InvalidInput(
            f"there are {MOST} saved views already", why="that is the most", fix="remove one that is not used"
        )
    await _write(store, {**known, name: text}, owner, by)
    return SavedView(name=name, filter=text, owner=owner)


async def find_view(store: Store, name: str, *, owner: str = "") -> SavedView:
    known = await _views_of(store, owner)
    if name in known:
        return SavedView(name=name, filter=known[name], owner=owner)
    raise NotFound(
        f'there is no {"view" if owner else "shared view"} "{name[:LONGEST_NAME]}"',
        why=f"the saved views are {', '.join(known)}" if known else "none is saved",
        fix=did_you_mean(name, known, "pitboss views list shows them"),
    )


async def remove_view(store: Store, name: str, *, owner: str = "", by: str) -> SavedView:
    found = await find_view(store, name, owner=owner)
    known = await _views_of(store, owner)
    await _write(store, {one: text for one, text in known.items() if one != name}, owner, by)
    return found


def view_document(one: SavedView) -> dict[str, Any]:
    return {"name": one.name, "filter": one.filter, "owner": one.owner or None, "shared": one.shared}


async def _views_of(store: Store, owner: str) -> dict[str, str]:
    return {one.name: one.filter for one in await list_views(store, owner) if one.owner == owner}


def _decoded(value: str) -> dict[str, str]:
    """A value that we cannot read is of another release."""
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


async def _write(store: Store, views: dict[str, str], owner: str, by: str) -> None:
    await store.wish(f"{_KEY}{owner}", msgspec.json.encode(views).decode() if views else None, by=by)
