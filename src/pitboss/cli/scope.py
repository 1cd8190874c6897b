"""What a command on pools is about: a pool, everywhere or on one host, as it runs and as it is wished."""

from typing import TYPE_CHECKING, Any, NamedTuple

from pitboss.cli.orders import order, wished
from pitboss.cli.words import close_to
from pitboss.model.desired_state import PoolWish, Wishes, pool_key
from pitboss.model.errors import NotFound
from pitboss.model.fleet import Managed, Place, managers, places
from pitboss.model.queue import checked_name

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store


class Scope(NamedTuple):
    """A pool by name; `host` None is everywhere. `wishes` are those of this pool, as they are written, by key."""

    name: str
    host: str | None
    places: list[Place]
    wishes: dict[str, dict[str, Any]]
    sense: Wishes

    def before(self, place: Place) -> PoolWish:
        """How it was until now: what was wished last, else what the manager tells, which may be seconds old."""
        wish = self.sense.pool(self.name, place.manager.host)
        return PoolWish(
            size=place.pool.wanted if wish.size is None else wish.size,
            generation=max(place.pool.generation, wish.generation or 0),
            paused=place.pool.paused if wish.paused is None else wish.paused,
        )

    @property
    def key(self) -> str:
        return pool_key(self.name, self.host)

    @property
    def everywhere(self) -> dict[str, Any]:
        """What is wished of it on every host."""
        return self.written(pool_key(self.name))

    def written(self, key: str) -> dict[str, Any]:
        return self.wishes.get(key, {})

    def generations(self) -> list[int]:
        """The generations that were ever asked for, on any host."""
        found = (wish.get("generation") for wish in self.wishes.values())
        return [number for number in found if isinstance(number, int)]

    async def order(self, store: "Store", **changes: Any) -> list[str]:
        """Wish it. What is said for every host replaces what was said for single ones: the last word holds. The hosts
        that lost a word of their own."""
        await order(store, self.key, self.written(self.key), **changes)
        single = [] if self.host is not None else sorted(self.wishes.keys() - {self.key})
        overruled = [key for key in single if changes.keys() & self.written(key).keys()]
        for key in overruled:
            await order(store, key, self.written(key), **dict.fromkeys(changes))
        return [key.partition("@")[2] for key in overruled]


async def fleet_of(store: "Store") -> list[Managed]:
    """The managers that are alive now."""
    from pitboss import wiring

    return managers(await store.sessions(), wiring.SystemClock().now())


async def scope_of(store: "Store", name: str, host: str | None) -> Scope:
    """The pool of this name; `NotFound` if nobody runs it and nobody wished anything of it."""
    checked_name(name, "pool")
    fleet = await fleet_of(store)
    written, sense = await wished(store)
    # The name ends at the @: no pool's name has one.
    wishes = {key: wish for key, wish in written.items() if key.partition("@")[0] == pool_key(name)}
    scope = Scope(name, host, places(fleet, name, host), wishes, sense)
    if not scope.places and not (scope.key in wishes or (host is None and wishes)):
        raise _nobody_runs(scope, fleet)
    return scope


def _nobody_runs(scope: Scope, fleet: list[Managed]) -> NotFound:
    running = places(fleet)
    hosts = sorted({place.manager.host for place in running if place.pool.name == scope.name})
    names = sorted({place.pool.name for place in running})
    if hosts:
        close = close_to(scope.host or "", hosts)
        return NotFound(
            f'pool "{scope.name}" does not run on "{scope.host}"',
            why=f"it runs on {', '.join(hosts)}",
            fix=f"did you mean --host {close}?" if close else "check the host; nothing was changed",
        )
    close = close_to(scope.name, names)
    return NotFound(
        f'no manager runs a pool "{scope.name}"',
        why=f"the pools are {', '.join(names)}" if names else "no manager is running on this store",
        fix=f"did you mean {close}? Nothing was changed" if close else "start its manager with pitboss up, then repeat",
    )
