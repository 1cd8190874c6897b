"""All that an engine can do, as one name: what the tools of this room ask of a store."""

from typing import Protocol

from pitboss.engines.protocol import (
    Batches,
    Control,
    Desired,
    Engine,
    Handlers,
    Leader,
    Leases,
    Ledger,
    Queues,
    Resources,
    Sessions,
)


class CoreStore(Engine, Sessions, Leader, Ledger, Control, Queues, Handlers, Desired, Protocol):
    """What every engine has."""


class Store(CoreStore, Resources, Leases, Batches, Protocol):
    """Every protocol that the suite proves and the checks of a history look at."""
