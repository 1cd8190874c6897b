"""Commands that help, as buttons: a form for what a route of the API does, a link for what a page shows.

The commands come with the verdict (`model/verdict.py`); one without a row here is shown as text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pitboss.http.web.view import View
from pitboss.model.verdict import Action

# That of the command: 2h.
_SILENCE_SECONDS = 7200


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


def _remedy(view: View, action: Action) -> Remedy:
    words = action.command.removeprefix("pitboss ").split()
    act = _act(words) if _complete(words) else None
    if act is not None:
        label = f"{action.label} to {act.fields['size']}" if act.fields.get("size", "").isdigit() else action.label
        return Remedy(f"{label}{'…' if act.confirm else ''}", action.command, act if _may(view, act) else None)
    # A link under the name of an act would promise what it does not do.
    return Remedy(action.label, action.command, href=_href(view, action, words) if action.looks else "")


def _complete(words: Sequence[str]) -> bool:
    return not any(word.isupper() or word == "…" for word in words)


def _may(view: View, act: Act) -> bool:
    return view.may("POST", act.path)


def _act(words: Sequence[str]) -> Act | None:
    make = _ACTS.get(" ".join(words[:2]))
    return make(words[2:]) if make is not None and len(words) > 2 else None  # noqa: PLR2004 - noun, verb, name


def _scale(words: Sequence[str]) -> Act | None:
    if len(words) < 2:  # noqa: PLR2004 - a name and a size
        return None
    name, size = words[:2]
    # Without a size, the pool goes back to configuration and load.
    fields = {"size": "_null" if size == "auto" else size}
    to = "its own size" if size == "auto" else f"{size} workers in each manager"
    return Act(f"/worker-pools/{name}/scale", fields, f"Scale worker pool {name} to {to}?")


def _undrain(words: Sequence[str]) -> Act | None:
    return Act(f"/managers/{words[-1]}/undrain") if words[-1].isdigit() else None


_ACTS: Mapping[str, Callable[[Sequence[str]], Act | None]] = {
    "queues resume": lambda words: Act(f"/queues/{words[0]}/resume"),
    "queues pause": lambda words: Act(
        f"/queues/{words[0]}/pause", {}, f"Pause queue {words[0]}? It gives no tasks until it is resumed."
    ),
    "pools scale": _scale,
    "pools resume": lambda words: Act(f"/worker-pools/{words[0]}/resume"),
    "pools restart": lambda words: Act(
        f"/worker-pools/{words[0]}/restart", {}, f"Replace the workers of pool {words[0]} one by one?"
    ),
    "resources enable": lambda words: (
        Act(f"/resource-pools/{words[0]}/members/{words[1]}/enable")
        if len(words) > 1 and not words[1].startswith("-")
        else None
    ),
    "drain --undo": _undrain,
    "alerts silence": lambda words: Act("/alerts/silences", {"rule": words[0], "for": str(_SILENCE_SECONDS)}),
}


def _href(view: View, action: Action, words: Sequence[str]) -> str:
    """The page that shows what the action is about; empty if there is none."""
    name = action.name
    for path, page, query in _pages(name, words):
        if view.exists(page) and view.sees(page):
            return view.url(path, **query)
    return ""


def _pages(name: str, words: Sequence[str]) -> list[tuple[str, str, dict[str, str]]]:
    """Addresses with the pages that they need, the best first."""
    noun = words[0]
    failed = "state:failed"
    if noun == "activity":
        return [("/activity", "/activity", {"kind": words[2]} if words[1:2] == ["--kind"] else {})]
    if noun in ("dead", "failures"):
        return [("/failures", "/failures", {}), ("/tasks", "/tasks", {"q": failed})]
    if noun == "tasks":
        return [("/tasks", "/tasks", {"q": " ".join(words[2:])})]
    if noun == "why":
        return [(f"/tasks/{name}", "/tasks/{task}", {}), ("/tasks", "/tasks", {"q": f"id:{name}"})]
    if noun == "queues":
        return [(f"/queues/{name}", "/queues/{name}", {}), ("/tasks", "/tasks", {"q": f"queue:{name} state:pending"})]
    if noun == "resources":
        waiting = {"q": f"state:pending resource:{name}/*"}
        return [(f"/resources/{name}", "/resources/{pool}", {}), ("/tasks", "/tasks", waiting)]
    if noun == "pools" or "--pool" in words:
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
