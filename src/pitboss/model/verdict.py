"""The verdict on a store: one sentence, its cause, until when, and what helps."""

import shlex
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgspec

from pitboss.model.duration import Moment


class Health(StrEnum):
    """`attention` is for a person to look at; `unhealthy` fails a health check."""

    HEALTHY = "healthy"
    ATTENTION = "attention"
    UNHEALTHY = "unhealthy"


class Action(msgspec.Struct, frozen=True):
    """A command that helps, with a label for a button, and what it is about, by kind and name. `looks`: it changes
    nothing. `act`, `args` and `options` are the command in parts ("queues pause", its names, and an empty text for an
    option without a value). A command with a part in capitals, such as NAME, must be completed."""

    label: str
    command: str
    kind: str = ""
    name: str = ""
    looks: bool = False
    act: str = ""
    args: tuple[str, ...] = ()
    options: dict[str, str] = {}

    @property
    def complete(self) -> bool:
        return not any(word.isupper() or word == "…" for word in (*self.args, *self.options.values()))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`cause` is stable and may be matched by programs; `queue` is the one it is about, if it is about one.

    `why` is the root cause in one line, if the sentence does not say it. `since` and `until` are when it began and when
    it ends by itself, if that is known; `until_note` says what happens then, or what must. `next_try` is when
    what failed is tried again, which need not end it. `next` is what to do first, `actions` are the commands that help.
    `also` are other findings, one line each.
    """

    health: Health
    cause: str
    sentence: str
    queue: str | None = None
    next: str = ""
    why: str = ""
    since: Moment | None = None
    until: Moment | None = None
    until_note: str = ""
    next_try: Moment | None = None
    actions: tuple[Action, ...] = ()
    also: tuple[str, ...] = ()


# What the nouns of commands are about.
_KINDS = {
    "queues": "queue",
    "pools": "worker-pool",
    "resources": "resource",
    "batches": "batch",
    "alerts": "alert",
    "schedules": "schedule",
    "why": "task",
    "tasks": "tasks",
    "dead": "failures",
    "figures": "queue",
    "partitions": "queue",
    "sources": "source",
    "logs": "manager",
    "drain": "manager",
    "doctor": "store",
    "ps": "manager",
    "activity": "activity",
}
_LOOKING = ("show", "list", "why", "figures", "doctor", "logs", "ps", "activity", "sources")
_ALONE = {
    "up": ("Start a manager", "manager", ""),
    "doctor": ("Check for problems", "store", ""),
    "dead": ("Show the failures", "failures", ""),
    "logs": ("Show the log", "manager", ""),
    "drain": ("Take tasks again", "manager", ""),
    "ps": ("Show the workers", "manager", ""),
    "activity": ("Show what happened", "activity", ""),
    "sources": ("Show the sources", "source", ""),
}


def action(command: str, label: str = "") -> Action | None:
    """The action of a command; None if the text is no command of Pitboss, but advice."""
    words = command.split()
    if words[:1] != ["pitboss"] or len(words) == 1:
        return None
    words = shlex.split(command)
    noun, plain, options = words[1], list[str](), dict[str, str]()
    for before, word in pairwise(words[1:]):
        if word.startswith("--"):
            options[word[2:]] = ""
        elif before.startswith("--"):
            options[before[2:]] = word
        else:
            plain.append(word)
    looks = noun in _LOOKING or (bool(plain) and plain[0] in _LOOKING)
    parts: dict[str, Any] = {"act": noun, "args": tuple(plain), "options": options}
    if noun in _ALONE:
        said, kind, name = _ALONE[noun]
        if "pool" in options:
            said, kind, name = f"Open {options['pool']}", "worker-pool", options["pool"]
        return Action(label or said, command, kind, name, looks, **parts)
    if noun == "why":
        return Action(label or "Why it waits", command, "task", plain[0] if plain else "", True, **parts)
    verb, name = plain[0] if plain else noun, " ".join(plain[1:2])
    parts |= {"act": f"{noun} {verb}", "args": tuple(plain[1:])}
    said = f"Open {name}" if verb == "show" else f"{verb.capitalize()} {name}".strip()
    if verb == "list":
        said = f"Show the {noun}"
    return Action(label or said, command, _KINDS.get(noun, noun), name, looks, **parts)


def actions(commands: Iterable[str]) -> tuple[Action, ...]:
    """Each command once; advice that is no command is left out."""
    return tuple(one for command in dict.fromkeys(commands) if (one := action(command)) is not None)


def store_away(what: str, why: str = "", fix: str = "") -> Verdict:
    """The verdict if the store does not answer: nothing else is known then."""
    return Verdict(
        health=Health.UNHEALTHY,
        cause="store-away",
        sentence=f"{what[:1].upper()}{what[1:].rstrip('.')}.",
        why=why,
        next=fix,
        actions=actions([fix]),
    )
