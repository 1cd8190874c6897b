"""The store, who leads, the hosts, and the checks of `pitboss doctor`."""

from importlib import metadata

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.operate.system import read_system

_SECONDS = 10.0


async def read(view: View) -> Context:
    server = view.call.server

    found = await view.readings.get("system", lambda: read_system(view.store, view.now, server.release), _SECONDS)
    return {"found": found, "version": server.release or metadata.version("pitboss")}


PAGES = (Page("/system", "System", "system.html", read, ("workers", "store")),)
