"""The claims that a worker holds: the thread that renews them, and the reports on them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from pitboss.remote.client import APIClient, settled
from pitboss.remote.errors import APIConnectionError, APIError, TaskProcessingError, WorkerError, failure, plain
from pitboss.remote.logs import logger
from pitboss.remote.routes import Routes
from pitboss.remote.tasks import Task, completion, running_task

LONGEST_RETRY = 5.0
RELEASE_FOR = 2.0
NOT_ACCEPTABLE = (400, 413, 415, 422)


class Keeper:
    """Renews each claim when a third of its time limit has passed.

    It has a thread and connections of its own: a handler that blocks the event loop, or reports that use up the
    connections, would otherwise let claims run out.
    """

    def __init__(self, connect: Callable[[], APIClient], worker_id: str) -> None:
        self._connect, self._worker_id = connect, worker_id
        self._held: dict[str, Task] = {}
        self._lock = threading.Lock()
        # A SimpleQueue, because a signal may interrupt any other kind of queue while it is locked.
        self._inbox: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = self._troubled = False

    def start(self) -> None:
        self._stopped = False
        self._thread = threading.Thread(target=self._keep, name="pitboss-claims", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._inbox.put(None)
        if self._thread:
            self._thread.join(timeout=1)
        self._thread = None

    def hold(self, task: Task) -> None:
        with self._lock:
            before = self._held.get(task.id)
            self._held[task.id] = task
        if before:  # this worker was given the task again, so its first claim had run out
            before.lose_claim()
        self._inbox.put(None)

    def drop(self, task: Task) -> None:
        with self._lock:
            if self._held.get(task.id) is task:
                del self._held[task.id]

    def find(self, task_id: object) -> Task | None:
        """The claim of a task: of the one that runs here, else of the one that is held."""
        task = running_task()
        return task if task and task.id == str(task_id) else self._held.get(str(task_id))

    def held(self) -> list[Task]:
        with self._lock:
            return list(self._held.values())

    def _keep(self) -> None:
        with self._connect() as client:
            while not self._stopped:
                with suppress(Empty):
                    self._inbox.get(timeout=self._until_due())
                due = [task for task in self.held() if task.renew_at <= time.monotonic() and not task.claim_lost]
                if due and not self._stopped:
                    self._renew(client, due)

    def _until_due(self) -> float | None:
        soonest = min((task.renew_at for task in self.held() if not task.claim_lost), default=None)
        return None if soonest is None else max(soonest - time.monotonic(), 0.0)

    def _renew(self, client: APIClient, due: list[Task]) -> None:
        for task in due:  # for those that are not renewed below
            task.renew_at = time.monotonic() + min(task.time_limit / 10, LONGEST_RETRY)
        try:
            told = self._renew_together(client, due)
            for task in due:
                row = told.get(task.id)
                self._note(task, row if row and "error" not in row else self._renew_one(client, task))
            self._tell(None)
        except WorkerError as error:
            self._tell(error)
        except Exception:  # this thread must go on: without it every claim runs out
            logger.exception("Claims were not renewed", extra={"worker_id": self._worker_id})

    def _tell(self, trouble: WorkerError | None) -> None:
        """An outage is told when it begins and when it is over, not at every attempt."""
        if trouble is not None and not self._troubled:
            logger.warning("Claims cannot be renewed: %s", trouble, extra={"worker_id": self._worker_id})
        elif trouble is None and self._troubled:
            logger.info("Claims are renewed again", extra={"worker_id": self._worker_id})
        self._troubled = trouble is not None

    def _renew_together(self, client: APIClient, due: list[Task]) -> dict[str, dict[str, Any]]:
        rows = [{"id": task["id"], "claim_token": task.get("claim_token")} for task in due]
        try:
            told = client.renew(self._worker_id, rows, _request_timeout(due)).get("tasks", ())
        except APIError as error:  # the server does not know this worker, or not this route: one by one, then
            logger.debug("Claims cannot be renewed together: %s", error)
            return {}
        return {str(row["id"]): row for row in told}

    def _renew_one(self, client: APIClient, task: Task) -> dict[str, Any] | None:
        """What the API says about one claim; None if it refused, and that does not mean that the claim is lost."""
        try:
            return client.report(task["id"], "heartbeat", task.claim, timeout=_request_timeout([task]), patience=0)
        except APIError as error:
            # During the last report, a refusal may only mean that this report was accepted.
            if not error.claim_is_over or task.reporting or self._held.get(task.id) is not task:
                return None
            about = {"worker_id": self._worker_id, "task_id": task.id}
            logger.warning("The claim is lost, another worker may run the task: %s", error, extra=about)
            task.lose_claim()
            return {}

    def _note(self, task: Task, row: dict[str, Any] | None) -> None:
        if row is not None:
            task.renew_at = time.monotonic() + task.time_limit / 3
            if row.get("cancel_requested"):
                task.cancel_event.set()


def _request_timeout(due: list[Task]) -> float:
    return min(10.0, *(max(task.time_limit / 3, 1.0) for task in due))


class Reports:
    """What a worker says about its claims. Coroutines, which never suspend in a sync worker."""

    def __init__(self, client: Callable[[], Routes[Any]], keeper: Keeper, worker_id: str, patience: float) -> None:
        self._client, self._keeper, self._worker_id, self._patience = client, keeper, worker_id, patience

    async def complete(self, task_id: object, result: Any) -> bool:
        """False if the claim is over, or if the result cannot be sent: then the task has failed."""
        try:
            return await self._last(task_id, "complete", completion(result))
        except (TypeError, ValueError, RecursionError) as error:
            refused = f"the result is not JSON: {error}"
        except APIError as error:
            if error.status not in NOT_ACCEPTABLE:
                raise
            refused = f"the API does not accept the result: {error}"
        await self.fail(task_id, TaskProcessingError(refused), {})
        return False

    async def fail(self, task_id: object, error: str | BaseException, details: Mapping[str, Any]) -> bool:
        said = failure(error) if isinstance(error, BaseException) else {"error": plain(str(error))}
        return await self._last(task_id, "fail", {**said, **details})

    async def _last(self, task_id: object, what: str, body: Mapping[str, Any]) -> bool:
        """The report that ends a claim. False if the claim is over already."""
        task = self._keeper.find(task_id)
        if task:
            task.reporting = True
        try:
            said = {**self._claim(task), **body}
            await settled(self._client().report(task_id, what, said, patience=self._patience))
            accepted = True
            if task:
                task.ended_by = what
        except APIError as error:
            if not error.claim_is_over:
                raise
            logger.warning("The API refused the report on task %s: %s", task_id, error)
            accepted = False
            if task:
                task.lose_claim()
        if task:
            self._keeper.drop(task)
        return accepted

    async def progress(self, task_id: object, percent: float, message: str | None) -> bool:
        """Best effort: the work goes on if the API cannot be reached. False if the claim is over."""
        task = self._keeper.find(task_id)
        said = {**self._claim(task), "progress": percent, **({} if message is None else {"message": message})}
        try:
            answer = await settled(self._client().report(task_id, "progress", said, patience=0))
        except APIConnectionError as error:
            logger.warning("Progress of task %s is not reported: %s", task_id, error)
            return True
        except APIError as error:
            if not error.claim_is_over:
                raise
            if task:
                task.lose_claim()
            return False
        if task and answer.get("cancel_requested"):
            task.cancel_event.set()
        return True

    async def give_back(self, task_id: object, details: Mapping[str, Any]) -> bool:
        """Give one task back. It costs no attempt. False if the claim is over."""
        return await self._last(task_id, "release", {name: said for name, said in details.items() if said is not None})

    async def release(self, tasks: Sequence[Task], reason: str) -> None:
        """Give tasks back at a stop. If the API cannot be reached, it gives them to others when their claims end."""
        for task in tasks:
            self._keeper.drop(task)
            try:
                said = {**self._claim(task), "reason": reason}
                await settled(self._client().report(task["id"], "release", said, patience=RELEASE_FOR))
            except APIError as error:
                logger.debug("Task %s is not released: %s", task.id, error)
            except WorkerError as error:
                logger.warning("Task %s is not released: %s", task.id, error)
                return

    def _claim(self, task: Task | None) -> dict[str, Any]:
        return task.claim if task else {"worker_id": self._worker_id}
