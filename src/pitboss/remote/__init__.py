"""Write a worker in Python that gets its tasks over HTTP. It uses nothing else of Pitboss."""

from pitboss.remote.async_worker import AsyncWorker
from pitboss.remote.client import APIClient, AsyncAPIClient
from pitboss.remote.config import Config
from pitboss.remote.errors import (
    APIConnectionError,
    APIError,
    ConfigError,
    TaskProcessingError,
    TaskValidationError,
    WorkerError,
)
from pitboss.remote.handler_tools import TTLCache, cached, in_batches, retry
from pitboss.remote.health import HealthReport, WorkerMetrics
from pitboss.remote.logs import JSONFormatter, log_context, setup_logging
from pitboss.remote.tasks import Task, error_result, success_result
from pitboss.remote.timeouts import timeout
from pitboss.remote.worker import Worker

__all__ = [
    "APIClient",
    "APIConnectionError",
    "APIError",
    "AsyncAPIClient",
    "AsyncWorker",
    "Config",
    "ConfigError",
    "HealthReport",
    "JSONFormatter",
    "TTLCache",
    "Task",
    "TaskProcessingError",
    "TaskValidationError",
    "Worker",
    "WorkerError",
    "WorkerMetrics",
    "cached",
    "error_result",
    "in_batches",
    "log_context",
    "retry",
    "setup_logging",
    "success_result",
    "timeout",
]
