"""The metrics that a server tells a monitoring system: the one list, with what each of them means.

Labels are bounded: none holds the id of a task, the name of a worker or of a member, or a process. Beyond the first
queues, handlers and pools, the rest has the label `(others)`. Together they are at most `MOST_SERIES` series.
"""

from enum import StrEnum
from typing import NamedTuple

from pitboss.model.totals import Spread

MOST_SERIES = 2000
# How many alert rules are told.
MOST_RULES = 20


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """`name` is the whole one, as it is shown; that of a histogram is extended by `_bucket`, `_sum` and `_count`."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str


class Series(NamedTuple):
    """One value of a metric, by its labels in their order. A spread is the value of a histogram."""

    labels: tuple[str, ...]
    value: float | Spread


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, labels, help_text)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, labels, help_text)


def _histogram(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, labels, help_text)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _counter(
            "pitboss_tasks_enqueued_total",
            "Tasks that came to wait: new ones, and ended ones that were retried by hand.",
            "queue",
            "handler",
        ),
        _counter(
            "pitboss_tasks_total",
            "Tasks that ended as completed, failed or cancelled, and runs that failed and are retried, or were lost "
            "with their worker.",
            "queue",
            "handler",
            "outcome",
        ),
        _histogram("pitboss_task_wait_seconds", "From when a task was due until a worker got it.", "queue"),
        _histogram("pitboss_task_run_seconds", "How long runs took.", "queue"),
        _gauge("pitboss_queue_tasks", "Unfinished tasks by state.", "queue", "state"),
        _gauge("pitboss_queue_oldest_wait_seconds", "How long the oldest due task has waited.", "queue"),
        _gauge("pitboss_queue_paused", "1 if an operator paused the queue.", "queue"),
        _gauge("pitboss_dead_letters", "Failed tasks that are stored.", "queue"),
        _gauge("pitboss_workers", "Workers by state.", "pool", "state"),
        _gauge("pitboss_workers_wanted", "Workers that the pool should have.", "pool"),
        _gauge("pitboss_worker_slots", "Tasks that the live workers of the pool can run at once.", "pool"),
        _gauge("pitboss_worker_tasks", "Tasks that the workers of the pool have.", "pool"),
        _gauge("pitboss_worker_memory_bytes", "Memory of the workers of the pool, with child processes.", "pool"),
        _counter("pitboss_worker_restarts_total", "Workers that were started again, for whatever reason.", "pool"),
        _counter("pitboss_worker_crashes_total", "Workers that died.", "pool"),
        _gauge("pitboss_resource_members", "Members of the resource pool by condition.", "pool", "condition"),
        _counter("pitboss_resource_uses_total", "Uses of members that tasks began.", "pool"),
        _counter("pitboss_resource_shortages_total", "Claims that found no usable member.", "pool"),
        _counter("pitboss_resource_refusals_total", "Uses in which a destination refused the member.", "pool"),
        _gauge("pitboss_schedules", "Schedules by state.", "state"),
        _gauge("pitboss_schedules_late", "Schedules whose tick passed and did not fire."),
        _gauge("pitboss_schedule_late_seconds", "How late the latest of them is."),
        _gauge("pitboss_batches", "Batches that have not ended, by status; at most 1,000 are counted.", "status"),
        _gauge("pitboss_alerts", "1 if the alert fires.", "rule", "severity"),
        _gauge("pitboss_managers", "Managers that are alive."),
        _gauge("pitboss_remote_workers", "Remote workers that are alive."),
        _gauge("pitboss_leader", "1 if a manager leads."),
        _gauge("pitboss_store_answer_seconds", "How long the store took for a small read."),
        _gauge("pitboss_build_info", "1; the label is the version of the server that answers.", "version"),
    )
}
