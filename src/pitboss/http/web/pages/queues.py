"""All queues in one table."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.overview import queue_flows
from pitboss.http.web.view import View


async def read(view: View) -> Context:
    wanted = view.query.get("q", "").strip().lower()
    flows = await queue_flows(view)
    return {"flows": [one for one in flows if wanted in one.queue.name.lower()], "wanted": wanted, "all": len(flows)}


PAGES = (Page("/queues", "Queues", "queues.html", read, ("queues", "workers", "wishes", "store")),)
