"""Metrics for Prometheus and everything that reads its format."""

from pitboss.http.answers import Reply
from pitboss.http.context import Call


async def metrics(call: Call, accept: str) -> Reply:
    """The metrics of all queues, workers and pools, for Prometheus."""
    values = await call.server.metrics.read()
    text = call.server.exposition.write(values, accept)
    return Reply.text(text.body, text.content_type)
