"""The worker: `python worker.py`, or `from worker import Worker; Worker().health_check()`."""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from api_client import CachedAPIClient, Manners, PauseNeeded
from config import YouTube
from pitboss import remote
from pitboss.remote import TaskProcessingError, WorkerError, error_result, success_result, timeout
from processors.youtube import YouTubeProcessor
from utils.logging import logger
from utils.validators import MOST_RESULTS, MOST_VIDEOS

TASK_SECONDS = 300
SEARCH_PARAMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "search_query": {"type": "string", "minLength": 1},  # its length counts after it was cleaned
        "max_results": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS},
        "fetch_metadata": {"type": "boolean"},
    },
    "required": ["search_query"],
    "additionalProperties": False,
}
METADATA_PARAMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "video_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_VIDEOS},
    },
    "required": ["video_ids"],
    "additionalProperties": False,
}


class YouTubeWorker(remote.Worker):
    """Searches for videos, and fetches their metadata."""

    task_types: ClassVar = {"youtube.search": SEARCH_PARAMS, "youtube.metadata": METADATA_PARAMS}

    def __init__(
        self,
        api_url: str | None = None,
        worker_id: str | None = None,
        config: Mapping[str, Any] | remote.Config | None = None,
        *,
        video_api: CachedAPIClient | None = None,
    ) -> None:
        super().__init__(api_url, worker_id, config)
        self.settings = YouTube.load(self.config)
        self.video_api = video_api or _client(self.settings, self.worker_id)
        self.processor = YouTubeProcessor(self.video_api)

    def process_task(self, task: dict[str, Any]) -> dict[str, Any]:
        params = task.get("params", {})
        try:
            with timeout(TASK_SECONDS):
                return self._metadata(task, params) if "video_ids" in params else self._search(task, params)
        except PauseNeeded as pause:
            # The task waits for the end of the pause in the queue. That costs no attempt.
            self.release_task(task["id"], delay=pause.retry_after, reason=str(pause))
            return error_result(pause)
        except WorkerError as error:
            logger.warning("Task %s: %s", task.get("id"), error)
            return error_result(error)

    def check_services(self) -> dict[str, bool]:
        return {"youtube_api": self.test_youtube_api()}

    def test_youtube_api(self) -> bool:
        """Whether there is a key, and an API that answers. It costs no quota."""
        self.settings.validate()
        return self.video_api.reachable()

    def _search(self, task: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        found = self.processor.search(params)
        ids = [video["video_id"] for video in found["videos"]]
        if params.get("fetch_metadata") and ids:
            found["metadata_task"] = self._fetch_metadata(task["id"], ids)
        return success_result(found, f"{found['count']} videos found")

    def _fetch_metadata(self, search: str, video_ids: list[str]) -> str:
        """Create the follow-up task. A search that runs twice, because its worker was killed, creates it once."""
        key = f"metadata of {search}"
        created = self.client.create_task(
            "youtube.metadata", {"video_ids": video_ids}, dedupe="forever", dedupe_key=key
        )
        return str(created["id"])

    def _metadata(self, task: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        def progress(done: int, total: int) -> None:
            if self.cancel_requested:
                raise TaskProcessingError("cancelled", retryable=False)
            if done < total:
                self.update_progress(task["id"], 100 * done // total, f"{done} of {total} videos")

        done = self.processor.metadata(params, progress)
        count, total = len(done["results"]), len(done["results"]) + len(done["errors"])
        if not done["success"]:
            return {**error_result(f"none of {total} videos is available", "not_found", retryable=False), "data": done}
        return success_result(done, f"{count} of {total} videos")


def _client(settings: YouTube, worker_id: str) -> CachedAPIClient:
    manners = Manners(
        requests_per_second=settings.requests_per_second,
        longest_wait=settings.longest_wait,
        quota_pause=settings.quota_pause,
    )
    agent = f"video-metadata-worker/1.0 ({worker_id})"
    return CachedAPIClient(settings.api_url, settings.api_key, user_agent=agent, manners=manners)


Worker = YouTubeWorker

if __name__ == "__main__":
    sys.exit(YouTubeWorker.main())
