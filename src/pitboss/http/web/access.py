"""Which role may see which page: the one table. A page that is not in it cannot be served. What a person does goes
through the routes of the API, which check roles themselves (`pitboss.http.access`)."""

from pitboss.http.access import PUBLIC, Roles
from pitboss.model.access import Role

VIEWER: Roles = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
ADMIN: Roles = frozenset({Role.ADMIN})

# Paths below /ui.
PAGES: dict[str, Roles] = {
    "/login": PUBLIC,
    "": VIEWER,
    "/tasks": VIEWER,
    "/tasks/{task}": VIEWER,
    "/queues": VIEWER,
    "/queues/{name}": VIEWER,
    "/batches": VIEWER,
    "/batches/{batch}": VIEWER,
    "/workers": VIEWER,
    "/workers/{session}/{name}": VIEWER,
    "/pools/{name}": VIEWER,
    "/resources": VIEWER,
    "/resources/{pool}": VIEWER,
    "/resources/{pool}/{member}": VIEWER,
    "/partitions": VIEWER,
    "/partitions/{queue}": VIEWER,
    "/schedules": VIEWER,
    "/schedules/{name}": VIEWER,
    "/events": VIEWER,
    "/events/{event}": VIEWER,
    "/sources": VIEWER,
    "/failures": VIEWER,
    "/failures/{fingerprint}": VIEWER,
    "/activity": VIEWER,
    "/alerts": VIEWER,
    "/operations": VIEWER,
    "/operations/{operation}": VIEWER,
    "/keys": ADMIN,
    "/system": VIEWER,
    # Not pages: what the scripts of pages ask for, and a file.
    "/live": VIEWER,
    "/palette": VIEWER,
    "/export": VIEWER,
    "/command": VIEWER,
}
