"""Pitboss: durable tasks, supervised workers, rate-limited resources, in one place."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pitboss.app import App
    from pitboss.client.batch_handle import BatchHandle
    from pitboss.client.context import Context, ctx
    from pitboss.client.handle import Handle
    from pitboss.client.lease import Lease
    from pitboss.client.resources import Resources
    from pitboss.model import facts
    from pitboss.model.errors import (
        InvalidInput,
        NotFound,
        PitbossError,
        QueueFull,
        StoreFull,
        StoreUnavailable,
        TaskFailed,
        TimedOutWaiting,
    )
    from pitboss.model.failure import DeadTask
    from pitboss.model.policy import Rule, backoff
    from pitboss.model.signals import Blocked, Cancel, Fail, RateLimited, ResourceFailed, Retry, Snooze
    from pitboss.model.states import State

__all__ = [
    "App",
    "BatchHandle",
    "Blocked",
    "Cancel",
    "Context",
    "DeadTask",
    "Fail",
    "Handle",
    "InvalidInput",
    "Lease",
    "NotFound",
    "PitbossError",
    "QueueFull",
    "RateLimited",
    "ResourceFailed",
    "Resources",
    "Retry",
    "Rule",
    "Snooze",
    "State",
    "StoreFull",
    "StoreUnavailable",
    "TaskFailed",
    "TimedOutWaiting",
    "backoff",
    "ctx",
    "facts",
]

# Loaded at first use: the command line stands in this package too, and its help should not wait for what it does not
# need. A type checker sees the imports above.
_HOMES = {
    "pitboss.app": ("App",),
    "pitboss.client.batch_handle": ("BatchHandle",),
    "pitboss.client.context": ("Context", "ctx"),
    "pitboss.client.handle": ("Handle",),
    "pitboss.client.lease": ("Lease",),
    "pitboss.client.resources": ("Resources",),
    "pitboss.model.failure": ("DeadTask",),
    "pitboss.model.policy": ("Rule", "backoff"),
    "pitboss.model.signals": ("Blocked", "Cancel", "Fail", "RateLimited", "ResourceFailed", "Retry", "Snooze"),
    "pitboss.model.states": ("State",),
}
_MODULES = {"facts": "pitboss.model.facts"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        return import_module(_MODULES[name])
    home = next((module for module, names in _HOMES.items() if name in names), "pitboss.model.errors")
    value = globals()[name] = getattr(import_module(home), name)
    return value
