"""All queues in one table."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.overview import queue_flows
from pitboss.http.web.pages.workers import pages_of, part
from pitboss.http.web.view import View


async def read(view: View) -> Context:
    wanted = view.query.get("q", "").strip().lower()
    flows = await queue_flows(view)
    chosen = [one for one in flows if wanted in one.queue.name.lower()]
    return {"flows": part(view, chosen), "wanted": wanted, "all": len(flows), **pages_of(view, len(chosen))}


PAGES = (Page("/queues", "Queues", "queues.html", read, ("queues", "workers", "wishes", "store")),)
