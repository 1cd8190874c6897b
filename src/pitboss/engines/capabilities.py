"""What an engine has beyond the core, and the errors for an app that needs more."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from pitboss.engines.access_protocol import Access
from pitboss.engines.protocol import (
    Batches,
    Diagnosis,
    Direct,
    Engine,
    Gradual,
    Maintenance,
    Outages,
    Schema,
    Within,
)
from pitboss.engines.resource_protocol import Leases, ResourcePools, Resources
from pitboss.model.errors import Unsupported
from pitboss.model.queue import HandlerInfo

_HAVE_IT = "use SQLite or PostgreSQL"
_SHOWN = 3
_NO_RESOURCES = "resource pools need a store that takes a task and its resource in one act"
_NO_ACCESS = "it stores no keys and no audit log"
_NO_BATCHES = "a batch and its items must change in one act, which that store cannot do"


@runtime_checkable
class ResourceStore(ResourcePools, Resources, Leases, Protocol):
    """Pools, their members, and leases of these: an engine has all or none."""


class Capabilities(NamedTuple):
    """The engine itself under each optional protocol that it has; None under the others.

    `engine` is None inside a worker, whose store has only the verbs that are open to it. `gradual` is what the engine
    says of itself (see `Gradual`).
    """

    engine: Engine | None
    resources: ResourceStore | None
    batches: Batches | None
    access: Access | None
    schema: Schema | None
    within: Within | None
    direct: Direct | None
    diagnosis: Diagnosis | None
    outages: Outages | None
    maintenance: Maintenance | None
    gradual: bool


def capabilities(store: object) -> Capabilities:
    """Look once and keep the answer: each protocol is compared method by method."""
    return Capabilities(
        engine=store if isinstance(store, Engine) else None,
        resources=store if isinstance(store, ResourceStore) else None,
        batches=store if isinstance(store, Batches) else None,
        access=store if isinstance(store, Access) else None,
        schema=store if isinstance(store, Schema) else None,
        within=store if isinstance(store, Within) else None,
        direct=store if isinstance(store, Direct) else None,
        diagnosis=store if isinstance(store, Diagnosis) else None,
        outages=store if isinstance(store, Outages) else None,
        maintenance=store if isinstance(store, Maintenance) else None,
        gradual=isinstance(store, Gradual) and store.gradual,
    )


def resources_of(store: object) -> ResourceStore:
    """The store itself, if it has resources."""
    if isinstance(store, ResourceStore):
        return store
    raise Unsupported(f"the {_name(store)} engine has no resources", why=_NO_RESOURCES, fix=_HAVE_IT)


def batches_of(store: object) -> Batches:
    """The store itself, if it has batches."""
    if isinstance(store, Batches):
        return store
    raise Unsupported(f"the {_name(store)} engine has no batches", why=_NO_BATCHES, fix=_HAVE_IT)


def access_of(store: object) -> Access:
    """The store itself, if it has keys of the HTTP API and an audit log."""
    if isinstance(store, Access):
        return store
    raise Unsupported(f"the {_name(store)} engine has no keys of the HTTP API", why=_NO_ACCESS, fix=_HAVE_IT)


def require(store: object, protocol: type) -> None:
    """Refuse a store without this protocol, if it is one that not every store has."""
    required: dict[type, Callable[[object], object]] = {
        ResourcePools: resources_of,
        Resources: resources_of,
        Leases: resources_of,
        Batches: batches_of,
    }
    if protocol in required:
        required[protocol](store)


def check_needs(store: object, handlers: Iterable[HandlerInfo], pools: Iterable[str] = ()) -> None:
    """Refuse an app that needs more than its engine has. Call it at the start, before anything is written.

    `pools` are the resource pools that code and settings declare.
    """
    needs = [f'task "{one.name}" holds a member of "{one.resources}"' for one in handlers if one.resources]
    needs += [f'it declares the resource pool "{pool}"' for pool in pools]
    if needs and not isinstance(store, ResourceStore):
        raise Unsupported(
            f"this app cannot run on the {_name(store)} engine",
            why=f"{'; '.join(needs[:_SHOWN])}; and that engine has no resources: {_NO_RESOURCES}",
            fix=_HAVE_IT,
        )


def _name(store: object) -> str:
    return str(getattr(store, "name", "present"))
