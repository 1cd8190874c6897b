"""The navigation: its entries in their order. Only those whose page exists are shown."""

from typing import NamedTuple


class Entry(NamedTuple):
    """`key` is pressed after `g`. `bar`: it also stands in the bar at the bottom of a small screen."""

    label: str
    path: str
    icon: str
    key: str = ""
    bar: bool = False
    second: bool = False


ENTRIES = (
    Entry("Overview", "", "grid", "o", bar=True),
    Entry("Tasks", "/tasks", "list", "t", bar=True),
    Entry("Queues", "/queues", "queue", "q", bar=True),
    Entry("Batches", "/batches", "layers", "b", bar=True),
    Entry("Workers", "/workers", "cpu", "w"),
    Entry("Resources", "/resources", "plug", "r"),
    Entry("Partitions", "/partitions", "move", "p"),
    Entry("Schedules", "/schedules", "clock", "s", second=True),
    Entry("Events", "/events", "bolt", "e", second=True),
    Entry("Sources", "/sources", "down", second=True),
    Entry("Failures", "/failures", "alert", "f", second=True),
    Entry("Activity", "/activity", "history", "a", second=True),
    Entry("Alerts", "/alerts", "bell", second=True),
    Entry("Operations", "/operations", "retry", second=True),
    Entry("Keys", "/keys", "keys", second=True),
    Entry("System", "/system", "star", second=True),
)
