"""Unit tests of the processors, the validators and the client of the video API. No network."""

import unittest
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

import httpx

from api_client import CachedAPIClient, Manners, QuotaExceeded, RequestRefused
from demo.catalogue import Catalogue
from demo.video_api import Rules, VideoAPI
from pitboss.remote import APIConnectionError
from processors.youtube import YouTubeProcessor
from utils.validators import InvalidParams, validate_max_results, validate_search_query, validate_video_ids

CATALOGUE = Catalogue(size=400)
PUBLIC = [video.id for video in CATALOGUE.videos.values() if not video.private]
PRIVATE = [video.id for video in CATALOGUE.videos.values() if video.private]


class Stage:
    """A processor with the stand-in behind it, without sockets, and with a clock that only `sleep` moves.

    `troubles` are the first answers; an exception stands for a connection that broke.
    """

    def __init__(
        self, *troubles: httpx.Response | Exception, manners: Manners = Manners(), key: str = "demo-key", **rules: Any
    ) -> None:
        self.troubles = [*troubles]
        self.now = 1000.0
        self.sent: list[tuple[float, httpx.Request]] = []
        self.api = VideoAPI(Rules(**rules), CATALOGUE, clock=lambda: self.now)
        self.client = CachedAPIClient(
            "http://test/youtube/v3",
            key,
            user_agent="video-metadata-worker/test",
            manners=manners,
            transport=httpx.MockTransport(self._answer),
            clock=lambda: self.now,
            sleep=self._sleep,
        )
        self.processor = YouTubeProcessor(self.client)

    @property
    def gaps(self) -> list[float]:
        times = [at for at, _ in self.sent]
        return [round(after - before, 3) for before, after in pairwise(times)]

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append((self.now, request))
        if self.troubles:
            trouble = self.troubles.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            return trouble
        path = request.url.path.rsplit("/", 1)[-1]
        answer = self.api.handle(path, dict(parse_qsl(request.url.query.decode())), request.headers, "here")
        return httpx.Response(answer.status, json=answer.body)


class TestValidators(unittest.TestCase):
    def test_a_query_is_cleaned(self) -> None:
        self.assertEqual(validate_search_query('  <b>slow-motion "pottery";  '), "bslow-motion pottery")
        self.assertEqual(validate_search_query("föhn über Zürich"), "föhn über Zürich")

    def test_a_query_has_at_most_200_characters(self) -> None:
        self.assertEqual(len(validate_search_query("a" * 200)), 200)
        with self.assertRaisesRegex(ValueError, "too long"):
            validate_search_query("a" * 201)

    def test_what_is_no_query_is_refused(self) -> None:
        for query in ("", None, 7, "!!!", "   "):
            with self.subTest(query=query), self.assertRaises(ValueError):
                validate_search_query(query)

    def test_max_results_is_from_1_to_50(self) -> None:
        self.assertEqual([validate_max_results(1), validate_max_results(50)], [1, 50])
        for value in (0, 51, "5", True, 2.0, None):
            with self.subTest(value=value), self.assertRaises(InvalidParams):
                validate_max_results(value)

    def test_video_ids_lose_repetitions_and_keep_their_order(self) -> None:
        self.assertEqual(validate_video_ids(["b", "a", "b"]), ["b", "a"])
        for value in ([], "abc", [1], ["x"] * 501):
            with self.subTest(value=value), self.assertRaises(InvalidParams):
                validate_video_ids(value)


class TestSearch(unittest.TestCase):
    def test_pages_are_followed_until_there_are_enough(self) -> None:
        stage = Stage(page=4)
        found = stage.processor.search({"search_query": "pottery", "max_results": 10})
        expected = [video.id for video in CATALOGUE.search("pottery")][:10]
        self.assertEqual([video["video_id"] for video in found["videos"]], expected)
        self.assertEqual((found["count"], len(stage.sent)), (10, 3))

    def test_a_search_ends_with_the_last_page(self) -> None:
        stage = Stage(page=4)
        query = CATALOGUE.videos[PUBLIC[0]].title
        self.assertEqual(stage.processor.search({"search_query": query, "max_results": 50})["count"], 1)
        self.assertEqual(stage.processor.search({"search_query": "nothing like this"})["videos"], [])

    def test_the_same_search_is_asked_once(self) -> None:
        stage = Stage()
        first = stage.processor.search({"search_query": "pottery"})
        self.assertEqual(stage.processor.search({"search_query": "pottery!"}), first)
        self.assertEqual(len(stage.sent), 1)

    def test_wrong_params_send_nothing(self) -> None:
        stage = Stage()
        with self.assertRaisesRegex(ValueError, "Missing required parameters: search_query"):
            stage.processor.search({})
        with self.assertRaises(InvalidParams):
            stage.processor.search({"search_query": "pottery", "max_results": 51})
        self.assertEqual(stage.sent, [])


class TestMetadata(unittest.TestCase):
    def test_batches_of_50(self) -> None:
        stage = Stage()
        done = stage.processor.process_videos_batch(PUBLIC[:120])
        self.assertTrue(done["success"])
        self.assertEqual([one["video_id"] for one in done["results"]], PUBLIC[:120])
        self.assertEqual([len(arrival.asked) for arrival in stage.api.arrivals], [50, 50, 20])
        self.assertIsInstance(done["results"][0]["views"], int)

    def test_partial_failures_are_listed_item_by_item(self) -> None:
        stage = Stage()
        ids = [PUBLIC[0], "no id", PRIVATE[0], "AAAAAAAAAAA"]
        done = stage.processor.metadata({"video_ids": ids})
        self.assertTrue(done["success"])
        self.assertEqual([one["video_id"] for one in done["results"]], PUBLIC[:1])
        self.assertEqual(
            {one["video_id"]: one["error"] for one in done["errors"]},
            {"no id": "not a video id", PRIVATE[0]: "not found, or private", "AAAAAAAAAAA": "not found, or private"},
        )

    def test_without_any_video_it_is_no_success(self) -> None:
        done = Stage().processor.metadata({"video_ids": PRIVATE[:2]})
        self.assertEqual((done["success"], len(done["errors"])), (False, 2))

    def test_a_failed_batch_does_not_spoil_the_others(self) -> None:
        stage = Stage(*[httpx.Response(500)] * 4)
        done = stage.processor.process_videos_batch(PUBLIC[:60])
        self.assertEqual((len(done["results"]), len(done["errors"])), (10, 50))
        self.assertEqual(
            {(one["error"], one["retryable"]) for one in done["errors"]}, {("500 Internal Server Error", True)}
        )

    def test_an_api_that_is_down_is_an_error_of_the_task(self) -> None:
        stage = Stage(*[httpx.ConnectError("refused")] * 4)
        with self.assertRaisesRegex(APIConnectionError, "cannot be reached"):
            stage.processor.process_videos_batch(PUBLIC[:2])

    def test_an_id_is_asked_once_also_if_there_is_no_such_video(self) -> None:
        stage = Stage()
        for _ in range(2):
            stage.processor.process_videos_batch([*PUBLIC[:3], PRIVATE[0]])
        stage.processor.process_videos_batch(PUBLIC[2:5])
        self.assertEqual(
            [arrival.asked for arrival in stage.api.arrivals], [(*PUBLIC[:3], PRIVATE[0]), tuple(PUBLIC[3:5])]
        )
        self.assertIsNotNone(stage.client.get_video_metadata(PUBLIC[0]))
        self.assertEqual(len(stage.sent), 2)


class TestManners(unittest.TestCase):
    def test_the_client_has_a_name_and_no_url_has_the_key(self) -> None:
        stage = Stage()
        stage.processor.search({"search_query": "pottery"})
        ((_, request),) = stage.sent
        self.assertEqual(request.headers["User-Agent"], "video-metadata-worker/test")
        self.assertNotIn("demo-key", str(request.url))

    def test_no_second_has_more_requests_than_configured(self) -> None:
        stage = Stage(manners=Manners(requests_per_second=4))
        for video_id in PUBLIC[:12]:
            stage.client.get_video_metadata(video_id)
        times = [at for at, _ in stage.sent]
        self.assertTrue(all(times[number + 4] - times[number] >= 1 for number in range(8)))

    def test_less_than_one_request_per_second(self) -> None:
        stage = Stage(manners=Manners(requests_per_second=0.5))
        for video_id in PUBLIC[:3]:
            stage.client.get_video_metadata(video_id)
        self.assertEqual(stage.gaps, [2.0, 2.0])

    def test_retry_after_is_honoured(self) -> None:
        stage = Stage(
            httpx.Response(429, headers={"Retry-After": "3"}), httpx.Response(503, headers={"Retry-After": "2"})
        )
        self.assertIsNotNone(stage.client.get_video_metadata(PUBLIC[0]))
        self.assertEqual(stage.gaps, [3.0, 2.0])

    def test_the_next_task_honours_it_too(self) -> None:
        stage = Stage(httpx.Response(429, headers={"Retry-After": "60"}))
        for _ in range(2):
            with self.assertRaises(APIConnectionError) as raised:
                stage.client.get_video_metadata(PUBLIC[0])
            self.assertEqual(raised.exception.retry_after, 60)
        self.assertEqual(len(stage.sent), 1)
        stage.now += 60
        self.assertIsNotNone(stage.client.get_video_metadata(PUBLIC[0]))

    def test_the_backoff_grows(self) -> None:
        stage = Stage(httpx.Response(500), httpx.ReadTimeout("slow"), httpx.Response(502))
        self.assertIsNotNone(stage.client.get_video_metadata(PUBLIC[0]))
        self.assertEqual(stage.gaps, [0.5, 1.0, 2.0])

    def test_a_used_up_quota_leaves_the_api_alone(self) -> None:
        stage = Stage(quota=101, day=7200)
        stage.processor.search({"search_query": "pottery"})
        for query in ("hiking", "chess"):
            with self.assertRaises(QuotaExceeded) as raised:
                stage.processor.search({"search_query": query})
            self.assertEqual(raised.exception.retry_after, 3600)
        self.assertEqual(len(stage.sent), 2)

    def test_a_quota_ends_a_metadata_task_at_once(self) -> None:
        stage = Stage(quota=1)
        with self.assertRaises(QuotaExceeded):
            stage.processor.process_videos_batch(PUBLIC[:120])
        self.assertEqual(len(stage.sent), 2)

    def test_a_wrong_key_is_not_tried_again(self) -> None:
        stage = Stage(key="wrong")
        with self.assertRaisesRegex(RequestRefused, "API key not valid"):
            stage.client.get_video_metadata(PUBLIC[0])
        self.assertEqual(len(stage.sent), 1)


if __name__ == "__main__":
    unittest.main()
