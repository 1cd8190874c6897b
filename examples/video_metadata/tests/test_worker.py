"""Unit tests of the worker and its settings. No network: the video API answers from memory, Pitboss is a mock."""

import json
import logging
import unittest
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import httpx

from config import GOOGLE, Config, YouTube
from pitboss import remote
from tests.test_processors import CATALOGUE, PRIVATE, PUBLIC, Stage
from utils.logging import JSONFormatter, log_context
from worker import Worker, YouTubeWorker


def task(**params: Any) -> dict[str, Any]:
    return {"id": "task-123", "type": "youtube.search", "params": params}


class TestWorker(unittest.TestCase):
    def setUp(self) -> None:
        patcher = patch.object(YouTubeWorker, "client", new_callable=PropertyMock)
        self.pitboss = patcher.start().return_value
        self.addCleanup(patcher.stop)
        self.pitboss.create_task.return_value = {"id": "task-124"}

    def worker(self, *troubles: httpx.Response | Exception, **rules: Any) -> YouTubeWorker:
        self.stage = Stage(*troubles, **rules)
        config = {"poll_interval": 1}
        return Worker("http://localhost", "test-worker", config, video_api=self.stage.client)

    def test_process_task_valid_params(self) -> None:
        result = self.worker().process_task({"params": {"search_query": "pottery", "max_results": 5}})
        self.assertTrue(result["success"])
        self.assertEqual(len(result["data"]["videos"]), 5)
        self.pitboss.create_task.assert_not_called()

    def test_wrong_params_are_not_tried_again(self) -> None:
        for params in ({}, {"search_query": ""}, {"search_query": "a", "max_results": 51}, {"video_ids": "a"}):
            with self.subTest(params=params):
                result = self.worker().process_task(task(**params))
                said = [result[name] for name in ("success", "error_type", "retryable")]
                self.assertEqual(said, [False, "validation", False])

    def test_youtube_api_failure(self) -> None:
        result = self.worker(*[httpx.ConnectError("API Error")] * 4).process_task(task(search_query="test"))
        self.assertFalse(result["success"])
        self.assertIn("API Error", result["error"])
        self.assertEqual((result["error_type"], result["retryable"]), ("connection", True))

    def test_a_wrong_key_is_not_tried_again(self) -> None:
        result = self.worker(key="wrong").process_task(task(search_query="test"))
        self.assertIn("API key not valid", result["error"])
        self.assertFalse(result["retryable"])

    def test_a_search_creates_one_follow_up(self) -> None:
        result = self.worker().process_task(task(search_query="pottery", max_results=3, fetch_metadata=True))
        self.assertEqual(result["data"]["metadata_task"], "task-124")
        ids = [video.id for video in CATALOGUE.search("pottery")[:3]]
        self.pitboss.create_task.assert_called_once_with(
            "youtube.metadata", {"video_ids": ids}, dedupe="forever", dedupe_key="metadata of task-123"
        )

    def test_a_search_without_results_creates_no_follow_up(self) -> None:
        result = self.worker().process_task(task(search_query="nothing like this", fetch_metadata=True))
        self.assertEqual((result["success"], result["data"]["count"]), (True, 0))
        self.pitboss.create_task.assert_not_called()

    def test_metadata_with_partial_failures(self) -> None:
        result = self.worker().process_task(task(video_ids=[PUBLIC[0], PRIVATE[0], "no id"]))
        self.assertTrue(result["success"])
        self.assertEqual(result["message"], "1 of 3 videos")
        self.assertEqual(len(result["data"]["errors"]), 2)

    def test_metadata_of_no_video_is_a_failure(self) -> None:
        result = self.worker().process_task(task(video_ids=PRIVATE[:2]))
        self.assertEqual((result["success"], result["retryable"]), (False, False))
        self.assertEqual([one["video_id"] for one in result["data"]["errors"]], PRIVATE[:2])

    def test_progress_after_each_batch_but_the_last(self) -> None:
        self.worker().process_task(task(video_ids=PUBLIC[:120]))
        said = [call.args[2]["message"] for call in self.pitboss.report.call_args_list]
        self.assertEqual(said, ["50 of 120 videos", "100 of 120 videos"])

    def test_a_used_up_quota_gives_the_task_back(self) -> None:
        result = self.worker(quota=99).process_task(task(search_query="pottery"))
        self.assertFalse(result["success"])
        ((task_id, what, said),) = [call.args for call in self.pitboss.report.call_args_list]
        self.assertEqual((task_id, what, said["delay"]), ("task-123", "release", 3600))

    def test_health_check(self) -> None:
        with patch.dict("os.environ", {"YOUTUBE_API_KEY": "demo-key"}):
            healthy, down = self.worker().health_check(), self.worker(httpx.ConnectError("down")).health_check()
        self.assertTrue(healthy)
        self.assertTrue(healthy["youtube_api"])
        self.assertEqual(self.stage.api.units(), [0], "it costs no quota")
        self.assertFalse(down)

    def test_a_worker_without_a_key_is_not_healthy(self) -> None:
        with patch.dict("os.environ", {"YOUTUBE_API_KEY": ""}):
            report = self.worker().health_check()
        self.assertFalse(report)
        self.assertIn("YOUTUBE_API_KEY", report["services_error"])


class TestConfig(unittest.TestCase):
    def test_the_names_of_the_document(self) -> None:
        for name in (
            "API_URL",
            "WORKER_ID",
            "POLL_INTERVAL",
            "MAX_RUNS",
            "DEBUG",
            "YOUTUBE_API_KEY",
            "YOUTUBE_API_URL",
        ):
            self.assertTrue(hasattr(Config, name), name)

    def load(self, file: dict[str, str], **environment: str) -> YouTube:
        with patch.dict("os.environ", environment, clear=True):
            return YouTube.load(remote.Config(extra=file))

    def test_the_environment_comes_before_the_file(self) -> None:
        file = {"YOUTUBE_API_KEY": "file", "YOUTUBE_REQUESTS_PER_SECOND": "2.5"}
        found = self.load(file, YOUTUBE_API_KEY="environment")
        self.assertEqual((found.api_key, found.api_url, found.requests_per_second), ("environment", GOOGLE, 2.5))

    def test_the_example_has_every_setting_of_its_own(self) -> None:
        file = remote.Config.load(file=Path(__file__).parent.parent / ".env.example").extra
        names = {"YOUTUBE_API_URL", "YOUTUBE_REQUESTS_PER_SECOND", "YOUTUBE_LONGEST_WAIT", "YOUTUBE_QUOTA_PAUSE"}
        self.assertEqual(set(file), names, "and the key, which is empty")
        self.assertEqual(self.load(dict(file)), self.load({}), "it shows the defaults")

    def test_wrong_settings_are_refused(self) -> None:
        for number in ("fast", "0", "-1", "nan", "inf"):
            with self.subTest(number=number), self.assertRaisesRegex(ValueError, "YOUTUBE_REQUESTS_PER_SECOND"):
                self.load({}, YOUTUBE_REQUESTS_PER_SECOND=number)
        with self.assertRaisesRegex(ValueError, "YOUTUBE_API_KEY"):
            self.load({}).validate()
        with self.assertRaisesRegex(ValueError, "YOUTUBE_API_URL"):
            self.load({}, YOUTUBE_API_KEY="key", YOUTUBE_API_URL="googleapis.com").validate()


class TestLogging(unittest.TestCase):
    def test_a_line_is_json_and_names_the_task(self) -> None:
        record = logging.makeLogRecord({"msg": "Processing", "levelname": "INFO"})
        with log_context(worker_id="w", task_id="t"):
            line = json.loads(JSONFormatter().format(record))
        self.assertEqual([line[name] for name in ("message", "worker_id", "task_id")], ["Processing", "w", "t"])


if __name__ == "__main__":
    unittest.main()
