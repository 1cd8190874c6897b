"""What every worker has: settings, counts, a health check, and its introduction to the API."""

import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar

from pitboss.remote.claims import Keeper, Reports
from pitboss.remote.client import APIClient, settled
from pitboss.remote.config import Config
from pitboss.remote.errors import APIConnectionError, APIError, ConfigError, WorkerError
from pitboss.remote.health import CpuMeter, HealthReport, WorkerMetrics, memory_usage_mb
from pitboss.remote.logs import logger, setup_logging
from pitboss.remote.routes import Routes
from pitboss.remote.tasks import running_task


class BaseWorker:
    """Settings, counts and steps that both kinds of worker share."""

    task_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    version: ClassVar[str] = "1.0.0"

    def __init__(
        self, api_url: str | None = None, worker_id: str | None = None, config: Mapping[str, Any] | Config | None = None
    ) -> None:
        named = {"api_url": api_url, "worker_id": worker_id}
        given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if isinstance(config, Config):
            self.config = replace(config, **given)
        else:
            self.config = Config.load(settings={**(config or {}), **given})
        self.api_url, self.worker_id = self.config.api_url, self.config.worker_id
        self.stats = {"processed": 0, "failed": 0}
        self.metrics = WorkerMetrics(started_at=datetime.now(UTC))
        self.claims_lost = 0
        self.consecutive_errors = 0
        self.max_consecutive_errors = self.config.max_consecutive_errors
        self._should_stop = self._types_registered = False
        self._keeper = Keeper(lambda: APIClient(**self._connection), self.worker_id)
        self._reports = Reports(lambda: self.client, self._keeper, self.worker_id, self.config.report_for)
        self._lock = threading.Lock()
        self._cpu = CpuMeter()
        self._prepare()

    # What the two kinds of worker do differently.

    @property
    def client(self) -> Routes[Any]:
        raise NotImplementedError

    def health_check(self) -> Any:
        raise NotImplementedError

    def claim_task(self) -> Any:
        raise NotImplementedError

    def complete_task(self, task_id: object, result: Any) -> Any:
        raise NotImplementedError

    def fail_task(self, task_id: object, error: str | BaseException, **details: Any) -> Any:
        raise NotImplementedError

    def run(self) -> int:
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make the state that only this kind of worker has."""
        raise NotImplementedError

    def _wake(self) -> None:
        """End `_wait`. A signal handler calls it."""
        raise NotImplementedError

    # What a subclass implements or calls.

    def process_task(self, task: dict[str, Any]) -> Any:
        """Do the work of one task and return its result. Implement it in a subclass."""
        raise NotImplementedError(f"{type(self).__name__}.process_task")

    def check_services(self) -> Any:
        """What else must work, by name, such as {"youtube_api": True}. A value of False makes the worker unhealthy."""
        return {}

    @property
    def should_stop(self) -> bool:
        return self._should_stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self._should_stop = value
        self._wake()

    @property
    def cancel_requested(self) -> bool:
        """Whether the running task should stop: an operator cancelled it, or its claim is lost."""
        task = running_task()
        return task is not None and task.cancel_requested

    @classmethod
    def main(cls, argv: Sequence[str] | None = None) -> int:
        """Run a worker with the settings of the command line. Returns its exit code: 0, 1, or 2 for a wrong setting."""
        about = (cls.__doc__ or cls.__name__).strip().splitlines()[0]
        try:
            config = Config.load(sys.argv[1:] if argv is None else argv, about=about)
            setup_logging(config.debug)
            worker = cls(api_url=config.api_url, worker_id=config.worker_id, config=config)
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return worker.run()

    # Start.

    def _check_handler(self) -> None:
        """A worker without a handler would fail every task that it claims."""
        if type(self).process_task is BaseWorker.process_task:
            raise NotImplementedError(f"{type(self).__name__} has no process_task: implement it in a subclass")

    @property
    def _connection(self) -> dict[str, Any]:
        config = self.config
        return {
            "api_url": config.api_url, "api_key": config.api_key, "timeout": config.request_timeout,
            "retry_for": config.retry_for,
        }  # fmt: skip

    async def _check_health(self) -> HealthReport:
        report = HealthReport(api_connectivity=False)
        services: dict[str, Any] = {}
        try:
            await settled(self.client.health())
            report["api_connectivity"] = True
            await self._check_key()
            await self._register_types()
        except WorkerError as error:
            report["task_types_error" if report["api_connectivity"] else "api_error"] = str(error)
        try:
            services = await settled(self.check_services())
        except Exception as error:
            services = {"services": False, "services_error": str(error)}
        report.update(services, memory_usage_mb=memory_usage_mb(), cpu_percent=self._cpu.percent())
        report.update(tasks_processed=self.metrics.tasks_completed, consecutive_errors=self.consecutive_errors)
        report["healthy"] = (
            report["api_connectivity"]
            and "task_types_error" not in report
            and not any(value is False for value in services.values())
            and self.consecutive_errors < self.max_consecutive_errors
        )
        return report

    async def _check_key(self) -> None:
        """The health route needs no key: a wrong one shows where one is needed."""
        try:
            await settled(self.client.check_key())
        except (APIError, APIConnectionError) as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise

    async def _register_types(self) -> None:
        if self._types_registered:
            return
        for name, declared in self.task_types.items():
            said = declared if "param_schema" in declared else {"param_schema": {"type": "object", **declared}}
            await settled(self.client.register_type(name, **{"version": self.version, "activate": False, **said}))
        self._types_registered = True

    async def _register_worker(self) -> None:
        metadata = {"host": socket.gethostname(), "pid": os.getpid(), "python": sys.version.split()[0]}
        about = {"name": self.worker_id, "status": "active", "metadata": metadata, "types": list(self.task_types)}
        try:
            await settled(self.client.register_worker(self.worker_id, **about))
        except WorkerError as error:
            logger.debug("Not registered, which claims do not need: %s", error)
