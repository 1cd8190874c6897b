"""Keys of the HTTP API: create, list, revoke; and whether a server may listen to other machines."""

from collections.abc import Callable, Iterable

from pitboss.engines.capabilities import access_of
from pitboss.model.access import ApiKey, checked_roles, digest_of, key_text
from pitboss.model.errors import NotFound, Refused
from pitboss.model.queue import checked_name
from pitboss.operate.lookup import did_you_mean


async def create_key(
    store: object,
    name: str,
    roles: Iterable[str],
    *,
    by: str,
    make_id: Callable[[], str],
    make_secret: Callable[[], str],
) -> tuple[ApiKey, str]:
    """A new key, and its whole text, which is not stored: show it once. The id may not have a "_"."""
    key_id, secret = make_id(), make_secret()
    key = ApiKey(
        id=key_id,
        name=checked_name(name, "key"),
        digest=digest_of(secret),
        roles=checked_roles(roles),
        created_by=by,
    )
    await access_of(store).add_key(key)
    return await find_key(store, key_id), key_text(key_id, secret)


async def list_keys(store: object) -> list[ApiKey]:
    """The oldest first; also the revoked ones."""
    return await access_of(store).api_keys()


async def revoke_key(store: object, name_or_id: str) -> ApiKey:
    """From now on the key opens nothing. Harmless to repeat."""
    key = await find_key(store, name_or_id)
    return await access_of(store).revoke_key(key.id) or key


async def refuse_open_door(store: object, address: str) -> None:
    """Refuse to listen to other machines on `address` before there is a key: any of them could use the API."""
    if any(key.revoked_at is None for key in await list_keys(store)):
        return
    raise Refused(
        f"the HTTP API cannot listen on {address}",
        why="other machines can reach it there, and this store has no key: each of them could do everything",
        fix="create a key first: pitboss keys create NAME --role admin; or listen on 127.0.0.1",
    )


async def find_key(store: object, name_or_id: str) -> ApiKey:
    """The key of this name that is not revoked, or of this id; else the last one that had the name."""
    known = await list_keys(store)
    named = [key for key in known if key.name == name_or_id]
    live = [key for key in named if key.revoked_at is None]
    found = live or [key for key in known if key.id == name_or_id] or named
    if found:
        return found[-1]
    names = sorted({key.name for key in known if key.revoked_at is None})
    raise NotFound(
        f'there is no key "{name_or_id}"',
        why=f"the keys are {', '.join(names)}" if names else "this store has no key",
        fix=did_you_mean(name_or_id, names, "pitboss keys list shows them"),
    )
