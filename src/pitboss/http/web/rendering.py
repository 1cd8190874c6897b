"""Templates, and what every page of them needs: navigation, theme, the caller, and how numbers are written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape

from pitboss.http.web import draw, formatting
from pitboss.http.web.formatting import number
from pitboss.http.web.nav import ENTRIES
from pitboss.http.web.pages import Page
from pitboss.http.web.static_files import HTMX, UPLOT, StaticFiles
from pitboss.http.web.view import View
from pitboss.model.duration import spoken
from pitboss.model.eta import spoken_range
from pitboss.model.filter import by, written
from pitboss.model.fleet import live_managers
from pitboss.model.queue import is_reserved
from pitboss.model.queue_forecast import spoken_clear
from pitboss.model.states import State
from pitboss.model.text import clean, counted, one_line
from pitboss.operate.status import MOST_BATCHES

_ENGINES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "memory": "in memory"}
_FOLDER = Path(__file__).parent / "templates"


def environment() -> Environment:
    """Templates with everything that does not depend on a page."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_safe,
    )
    filters = {
        name: getattr(formatting, name)
        for name in (
            "number",
            "seconds",
            "span",
            "rate",
            "size",
            "percent",
            "moment",
            "ago",
            "short",
            "params",
            "pretty",
        )
    }
    made.filters |= {
        **filters,
        "spoken": spoken,
        "range": spoken_range,
        "clearing": spoken_clear,
        "one_line": one_line,
        # For texts that are joined with markup.
        "clean": clean,
        # What a form sends back must be as it is stored.
        "exact": escape,
    }
    made.globals |= {
        "draw": draw,
        "counted": counted,
        "filtered": _filtered,
        "htmx": HTMX,
        "uplot": UPLOT,
    }
    return made


class Rendering:
    """`paths` are those of the pages that exist, `badge` is a word such as "production"."""

    def __init__(self, files: StaticFiles, paths: frozenset[str], badge: str = "") -> None:
        self._files, self._paths, self._badge = files, paths, badge
        self._templates = environment()

    async def page(
        self, view: View, page: Page, context: Mapping[str, Any], flash: Mapping[str, str], *, logout: bool
    ) -> str:
        status = await view.status()
        managers = live_managers(status.sessions, status.now)
        frame = {
            "title": page.title,
            "topics": page.topics,
            "flash": flash,
            "logout": logout,
            "nav": [one for one in ENTRIES if one.path in self._paths and view.sees(one.path)],
            "counts": {
                "/queues": number(sum(not is_reserved(one.name) for one in status.queues)),
                "/batches": f"{len(status.batches)}{'+' * (len(status.batches) == MOST_BATCHES)}",
                "/workers": number(sum(len(one.live) for one in managers)),
                "/schedules": number(status.schedules.total if status.schedules else 0),
                "/failures": number(sum(one.counts.get(State.FAILED, 0) for one in status.queues)),
            },
            "managers": len(managers),
            "hosts": len({one.host for one in managers}),
            "environment": self._badge,
            "engine": _ENGINES.get(view.store.name, view.store.name),
            "release": view.call.server.release,
        }
        return self._rendered(view, page.template, {**frame, **context})

    def error(self, view: View, code: int, name: str, told: Mapping[str, Any]) -> str:
        return self._rendered(view, "error.html", {"title": name, "code": code, "told": told})

    def login(self, view: View, place: str, failed: str) -> str:
        return self._rendered(view, "login.html", {"title": "Log in", "place": place, "failed": failed})

    def confirm(self, view: View, question: str, fields: Sequence[tuple[str, str]], place: str) -> str:
        return self._rendered(
            view, "confirm.html", {"title": "Are you sure?", "question": question, "fields": fields, "place": place}
        )

    def made(self, view: View, text: str, values: Mapping[str, Any]) -> str:
        return self._rendered(view, "made.html", {"title": text, "values": values})

    def _rendered(self, view: View, template: str, context: Mapping[str, Any]) -> str:
        def static(name: str) -> str:
            return view.url(self._files.address(name))

        common = {"view": view, "url": view.url, "now": view.now, "static": static, "may": view.may}
        return self._templates.get_template(template).render({**common, **context})


def _safe(value: Any) -> Any:
    """Every text that a template shows; what is markup already (`exact`) stays."""
    return clean(value) if type(value) is str else value


def _filtered(**fields: str) -> str:
    """The text of a filter by these fields: filtered(queue=name)."""
    return written(by(**fields))
