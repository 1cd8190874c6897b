"""Commands that help, as buttons: a form for what a route of the API does, a link for what a page shows.

The commands come with the verdict (`model/verdict.py`); one without a row here is shown as text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pitboss.http.web.view import View
from pitboss.model.duration import SECOND, span
from pitboss.model.verdict import Action, action


class Act(NamedTuple):
    """A route of the API, and the fields of its form. `confirm` is a question; empty: the act can be undone."""

    path: str
    fields: Mapping[str, str] = {}
    confirm: str = ""


class Remedy(NamedTuple):
    """`act` and `href` are what a button does; with neither there is the command alone."""

    label: str
    command: str
    act: Act | None = None
    href: str = ""


def remedies(view: View, actions: Sequence[Action]) -> list[Remedy]:
    """One for each action, in their order. What the caller may not use is left as a command."""
    return [_remedy(view, one) for one in actions]


def helps(view: View, texts: Sequence[str]) -> list[Remedy]:
    """The same for what helps a task or batch; advice that is no command stays text."""
    found = [(text, action(text)) for text in texts]
    return [Remedy("", text) if one is None else _remedy(view, one) for text, one in found]


def _remedy(view: View, action: Action) -> Remedy:
    make = _ACTS.get(action.act)
    act = make(action) if make is not None and action.complete else None
    if act is not None:
        label = action.label
        if (size := act.fields.get("size", "")).isdigit():
            label += f" to {size}" if act.fields.get("host") else f" to {size} in each manager"
        return Remedy(
            f"{label}{'…' if act.confirm else ''}", action.command, act if view.may("POST", act.path) else None
        )
    # A link under the name of an act would promise what it does not do.
    return Remedy(action.label, action.command, href=_href(view, action) if action.looks else "")


def _plain(path: str, question: str = "", **fields: str) -> Callable[[Action], Act | None]:
    """The route of an act on the first name of the command; the question may have it as {}."""

    def make(action: Action) -> Act | None:
        name = action.args[0] if action.args else ""
        return Act(path.format(name), fields, question.format(name)) if name else None

    return make


def _scale(action: Action) -> Act | None:
    if len(action.args) < 2:  # noqa: PLR2004 - a name and a size
        return None
    name, size = action.args[:2]
    # Without a size, the pool goes back to configuration and load.
    fields = {"size": "_null" if size == "auto" else size, "host": action.options.get("host", "")}
    to = "its own size" if size == "auto" else f"{size} workers in each manager"
    return Act(f"/worker-pools/{name}/scale", fields, f"Scale worker pool {name} to {to}?")


def _members(act: str, what: str) -> Callable[[Action], Act | None]:
    """An act on one member of a resource pool, or on all."""

    def make(action: Action) -> Act | None:
        pool, member = (*action.args, "", "")[:2]
        if member:
            question = f"{what} of {member}?" if act == "reset" else ""
            return Act(f"/resource-pools/{pool}/members/{member}/{act}", {}, question)
        all_of = f"{what} of all members of {pool}?"
        return Act(f"/resource-pools/{pool}/{act}", {}, all_of) if pool and "all" in action.options else None

    return make


def _undrain(action: Action) -> Act | None:
    number = action.options.get("manager", "")
    return Act(f"/managers/{number}/undrain") if "undo" in action.options and number.isdigit() else None


def _silence(action: Action) -> Act | None:
    if not action.args or "for" not in action.options:
        return None
    seconds = span(action.options["for"]) // SECOND
    return Act("/alerts/silences", {"rule": action.args[0], "for": str(seconds)})


def _move(action: Action) -> Act | None:
    if len(action.args) < 2:  # noqa: PLR2004 - a batch and a place
        return None
    return Act(f"/batches/{action.args[0]}/move", {"to": action.args[1]})


_ACTS: Mapping[str, Callable[[Action], Act | None]] = {
    "queues resume": _plain("/queues/{}/resume"),
    "queues pause": _plain("/queues/{}/pause", "Pause queue {}? It gives no tasks until it is resumed."),
    "pools scale": _scale,
    "pools resume": _plain("/worker-pools/{}/resume"),
    "pools restart": _plain("/worker-pools/{}/restart", "Replace the workers of pool {} one by one?"),
    "resources enable": _members("enable", "Enable use"),
    "resources reset": _members("reset", "Clear failures, cooldown and blacklist"),
    "schedules run": _plain("/schedules/{}/run", "Put a task of schedule {} now, besides its ticks?"),
    "batches resume": _plain("/batches/{}/resume"),
    "batches start": _plain("/batches/{}/start", "Start batch {} now, whether or not its lane has a free slot?"),
    "batches move": _move,
    "tasks cancel": _plain("/tasks/{}/cancel", "Cancel task {}?"),
    "drain": _undrain,
    "alerts silence": _silence,
}


def _href(view: View, action: Action) -> str:
    """The page that shows what the action is about; empty if there is none."""
    for path, page, query in _pages(action):
        if view.exists(page) and view.sees(page):
            return view.url(path, **query)
    return ""


def _pages(action: Action) -> list[tuple[str, str, dict[str, str]]]:
    """Addresses with the pages that they need, the best first."""
    name, noun = action.name, action.act.partition(" ")[0]
    failed = "state:failed"
    if noun == "activity":
        return [("/activity", "/activity", {"kind": action.options.get("kind", "")})]
    if noun in ("dead", "failures"):
        return [("/failures", "/failures", {}), ("/tasks", "/tasks", {"q": failed})]
    if noun == "tasks":
        return [("/tasks", "/tasks", {"q": " ".join(action.args)})]
    if noun == "why":
        return [(f"/tasks/{name}", "/tasks/{task}", {}), ("/tasks", "/tasks", {"q": f"id:{name}"})]
    if noun == "queues":
        return [(f"/queues/{name}", "/queues/{name}", {}), ("/tasks", "/tasks", {"q": f"queue:{name} state:pending"})]
    if noun == "resources":
        waiting = {"q": f"state:pending resource:{name}/*"}
        return [(f"/resources/{name}", "/resources/{pool}", {}), ("/tasks", "/tasks", waiting)]
    if noun == "pools" or "pool" in action.options:
        return [(f"/pools/{name}", "/pools/{name}", {}), ("/workers", "/workers", {"pool": name})]
    return [(path, path, {}) for path in _PLAIN.get(noun, ())]


_PLAIN: Mapping[str, tuple[str, ...]] = {
    "alerts": ("/alerts",),
    "batches": ("/batches",),
    "doctor": ("/system",),
    "partitions": ("/partitions",),
    "ps": ("/workers",),
    "schedules": ("/schedules",),
    "sources": ("/sources",),
}
