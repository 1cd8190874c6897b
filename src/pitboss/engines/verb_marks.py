"""Marks on the verbs of the protocols."""

from collections.abc import Callable
from typing import Any, TypeVar

Verb = TypeVar("Verb", bound=Callable[..., Any])


def open_to_workers(verb: Verb) -> Verb:
    """Mark a verb that handlers may call from inside a worker. A verb without this mark is closed to them."""
    vars(verb)["open_to_workers"] = True
    return verb
