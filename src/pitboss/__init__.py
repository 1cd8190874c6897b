"""Pitboss: durable tasks, supervised workers, rate-limited resources, in one place."""

from pitboss.app import App
from pitboss.client.context import Context, ctx
from pitboss.client.handle import Handle
from pitboss.model.errors import (
    InvalidInput,
    NotFound,
    PitbossError,
    QueueFull,
    StoreUnavailable,
    TaskFailed,
    TimedOutWaiting,
)
from pitboss.model.policy import Backoff, Rule
from pitboss.model.signals import Cancel, Fail, Retry, Snooze
from pitboss.model.states import State

__all__ = [
    "App",
    "Backoff",
    "Cancel",
    "Context",
    "Fail",
    "Handle",
    "InvalidInput",
    "NotFound",
    "PitbossError",
    "QueueFull",
    "Retry",
    "Rule",
    "Snooze",
    "State",
    "StoreUnavailable",
    "TaskFailed",
    "TimedOutWaiting",
    "ctx",
]
