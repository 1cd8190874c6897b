"""What an engine has beyond the core, and the errors for an app that needs more."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

from pitboss.engines.access_protocol import Access
from pitboss.engines.alert_protocol import Alerts
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.declared_protocol import Declarations, Events, LeaderActs, Schedules
from pitboss.engines.figure_protocol import Figures
from pitboss.engines.happening_protocol import Happenings
from pitboss.engines.operation_protocol import Operations
from pitboss.engines.partition_protocol import Partitions
from pitboss.engines.protocol import (
    Diagnosis,
    Direct,
    Engine,
    Gradual,
    Maintenance,
    Outages,
    Schema,
    Usage,
    Within,
)
from pitboss.engines.resource_protocol import Leases, ResourcePools, Resources
from pitboss.model.declared import Declared
from pitboss.model.errors import Unsupported
from pitboss.model.queue import HandlerInfo, QueueSettings

_HAVE_IT = "use SQLite or PostgreSQL"
_SHOWN = 3
_NO_RESOURCES = "resource pools need a store that takes a task and its resource in one act"
_NO_ACCESS = "it stores no keys and no audit log"
_NO_BATCHES = "a batch and its items must change in one act, which that store cannot do"
_NO_DECLARATIONS = "it does not store what apps declare"
_NO_SCHEDULES = "it does not store schedules"
_NO_PARTITIONS = "it does not divide the tasks of a queue among workers"
_NO_OPERATIONS = "it does not store the progress of bulk acts"
_NO_HAPPENINGS = "it keeps no log of what happened"
_NO_EVENTS = "it does not store events and subscriptions"
_NO_ALERTS = "it does not store which alerts fire, and what was told of them"
_NO_FIGURES = "it does not keep figures over time"


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
    declarations: Declarations | None
    schedules: Schedules | None
    events: Events | None
    leader_acts: LeaderActs | None
    partitions: Partitions | None
    operations: Operations | None
    usage: Usage | None
    alerts: Alerts | None
    figures: Figures | None
    happenings: Happenings | None
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
        declarations=store if isinstance(store, Declarations) else None,
        schedules=store if isinstance(store, Schedules) else None,
        events=store if isinstance(store, Events) else None,
        leader_acts=store if isinstance(store, LeaderActs) else None,
        partitions=store if isinstance(store, Partitions) else None,
        operations=store if isinstance(store, Operations) else None,
        usage=store if isinstance(store, Usage) else None,
        alerts=store if isinstance(store, Alerts) else None,
        figures=store if isinstance(store, Figures) else None,
        happenings=store if isinstance(store, Happenings) else None,
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


def declarations_of(store: object) -> Declarations:
    """The store itself, if it keeps what apps declare."""
    if isinstance(store, Declarations):
        return store
    raise Unsupported(f"the {_name(store)} engine has no declarations", why=_NO_DECLARATIONS, fix=_HAVE_IT)


def schedules_of(store: object) -> Schedules:
    """The store itself, if it has schedules."""
    if isinstance(store, Schedules):
        return store
    raise Unsupported(f"the {_name(store)} engine has no schedules", why=_NO_SCHEDULES, fix=_HAVE_IT)


def events_of(store: object) -> Events:
    """The store itself, if it has events."""
    if isinstance(store, Events):
        return store
    raise Unsupported(f"the {_name(store)} engine has no events", why=_NO_EVENTS, fix=_HAVE_IT)


def happenings_of(store: object) -> Happenings:
    """The store itself, if it keeps what happened."""
    if isinstance(store, Happenings):
        return store
    raise Unsupported(f"the {_name(store)} engine has no happenings", why=_NO_HAPPENINGS, fix=_HAVE_IT)


def partitions_of(store: object) -> Partitions:
    """The store itself, if it has partitions."""
    if isinstance(store, Partitions):
        return store
    raise Unsupported(f"the {_name(store)} engine has no partitions", why=_NO_PARTITIONS, fix=_HAVE_IT)


def alerts_of(store: object) -> Alerts:
    """The store itself, if it has alerts."""
    if isinstance(store, Alerts):
        return store
    raise Unsupported(f"the {_name(store)} engine has no alerts", why=_NO_ALERTS, fix=_HAVE_IT)


def operations_of(store: object) -> Operations:
    """The store itself, if it has operations."""
    if isinstance(store, Operations):
        return store
    raise Unsupported(f"the {_name(store)} engine has no operations", why=_NO_OPERATIONS, fix=_HAVE_IT)


def figures_of(store: object) -> Figures:
    """The store itself, if it keeps figures over time."""
    if isinstance(store, Figures):
        return store
    raise Unsupported(f"the {_name(store)} engine has no figures", why=_NO_FIGURES, fix=_HAVE_IT)


def require(store: object, protocol: type) -> None:
    """Refuse a store without this protocol, if it is one that not every store has."""
    required: dict[type, Callable[[object], object]] = {
        ResourcePools: resources_of,
        Resources: resources_of,
        Leases: resources_of,
        Batches: batches_of,
        Declarations: declarations_of,
        Schedules: schedules_of,
        Events: events_of,
        Partitions: partitions_of,
        Figures: figures_of,
    }
    if protocol in required:
        required[protocol](store)


def check_needs(
    store: object, handlers: Iterable[HandlerInfo], pools: Iterable[str] = (), declared: Declared | None = None
) -> None:
    """Refuse an app that needs more than its engine has. Call it at the start, before anything is written.

    `pools` are the resource pools that code and settings declare.
    """
    for lack in _lacks(store, declared) if declared is not None else ():
        raise Unsupported(f"this app cannot run on the {_name(store)} engine", why=lack, fix=_HAVE_IT)
    needs = [f'task "{one.name}" holds a member of "{one.resources}"' for one in handlers if one.resources]
    needs += [f'it declares the resource pool "{pool}"' for pool in pools]
    if needs and not isinstance(store, ResourceStore):
        raise Unsupported(
            f"this app cannot run on the {_name(store)} engine",
            why=f"{'; '.join(needs[:_SHOWN])}; and that engine has no resources: {_NO_RESOURCES}",
            fix=_HAVE_IT,
        )


def _lacks(store: object, declared: Declared) -> Iterator[str]:
    """What the app declares that the engine does not have."""
    listeners = sorted({one.handler for one in declared.subscriptions})
    limited = [name for name, settings in declared.queues.items() if settings != QueueSettings()]
    if limited and not isinstance(store, Declarations):
        yield f"it declares limits of {_listed(limited)}; and {_NO_DECLARATIONS}"
    divided = [name for name, settings in declared.queues.items() if settings.partitions is not None]
    if divided and not isinstance(store, Partitions):
        yield f"it declares partitions of {_listed(divided)}; and {_NO_PARTITIONS}"
    if declared.schedules and not (isinstance(store, Schedules) and isinstance(store, LeaderActs)):
        yield f"it declares the schedules {_listed(one.name for one in declared.schedules)}; and {_NO_SCHEDULES}"
    if listeners and not isinstance(store, Events):
        yield f"{_listed(listeners)} subscribe to events; and {_NO_EVENTS}"


def _listed(names: Iterable[str]) -> str:
    first = list(islice(names, _SHOWN + 1))
    return ", ".join(first[:_SHOWN]) + (" …" if len(first) > _SHOWN else "")


def _name(store: object) -> str:
    return str(getattr(store, "name", "present"))
