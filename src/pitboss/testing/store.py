"""All that an engine can do, as one name: what the tools of this room ask of a store."""

from typing import Protocol

from pitboss.engines.protocol import Control, Desired, Engine, Handlers, Leader, Ledger, Queues, Sessions


class Store(Engine, Sessions, Leader, Ledger, Control, Queues, Handlers, Desired, Protocol):
    """Every protocol that the checks of a history look at."""
