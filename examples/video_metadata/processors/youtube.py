"""Searches, and the metadata of videos."""

from collections.abc import Callable
from typing import Any

from api_client import MOST_IDS, CachedAPIClient, PauseNeeded
from pitboss.remote import APIConnectionError, in_batches
from utils.validators import is_video_id, require, validate_max_results, validate_search_query, validate_video_ids

Json = dict[str, Any]
# Called with the number of videos that are done, and of all.
Progress = Callable[[int, int], None]


class YouTubeProcessor:
    """Keeps nothing of one task for the next, apart from the client's cache."""

    def __init__(self, client: CachedAPIClient) -> None:
        self._client = client

    def search(self, params: Json) -> Json:
        """Up to `max_results` videos, from as many pages as they need."""
        require(params, "search_query")
        query = validate_search_query(params["search_query"])
        wanted = validate_max_results(params.get("max_results", 10))
        videos: list[Json] = []
        token: str | None = ""
        while token is not None and len(videos) < wanted:
            page = self._client.search_page(query, wanted - len(videos), token)
            videos += [_found(item) for item in page["items"]]
            token = page.get("nextPageToken")
        return {"query": query, "videos": videos, "count": len(videos)}

    def metadata(self, params: Json, progress: Progress = lambda done, total: None) -> Json:
        require(params, "video_ids")
        return self.process_videos_batch(validate_video_ids(params["video_ids"]), progress=progress)

    def process_videos_batch(
        self, video_ids: list[str], batch_size: int = MOST_IDS, progress: Progress = lambda done, total: None
    ) -> Json:
        """Each video is in `results` or in `errors`: a wrong id or a failed batch does not spoil the others.

        If no batch is answered, the API is down: its error is raised, and the task is tried again later.
        """
        results: list[Json] = []
        errors = [_error(one, "not a video id") for one in video_ids if not is_video_id(one)]
        troubles: list[APIConnectionError] = []
        batches = list(in_batches([one for one in video_ids if is_video_id(one)], batch_size))
        for batch in batches:
            try:
                videos = self._client.get_videos(batch)
            except PauseNeeded:
                raise  # the other batches would meet it too; what was answered so far is in the cache
            except APIConnectionError as trouble:
                troubles.append(trouble)
                errors += [_error(one, str(trouble), retryable=True) for one in batch]
            else:
                results += [_metadata(video) for video in videos.values() if video is not None]
                errors += [_error(one, "not found, or private") for one, video in videos.items() if video is None]
            progress(len(results) + len(errors), len(video_ids))
        if troubles and len(troubles) == len(batches):
            raise troubles[-1]
        return {"success": len(results) > 0, "results": results, "errors": errors}


def _error(video_id: str, error: str, *, retryable: bool = False) -> Json:
    return {"video_id": video_id, "error": error, "retryable": retryable}


def _found(item: Json) -> Json:
    snippet = item["snippet"]
    return {"video_id": item["id"]["videoId"], "title": snippet["title"], "published_at": snippet["publishedAt"]}


def _metadata(video: Json) -> Json:
    snippet, statistics = video["snippet"], video["statistics"]
    return {
        "video_id": video["id"],
        "title": snippet["title"],
        "channel": snippet["channelTitle"],
        "published_at": snippet["publishedAt"],
        "duration": video["contentDetails"]["duration"],
        "views": int(statistics.get("viewCount", 0)),  # channels can hide counts
        "likes": int(statistics.get("likeCount", 0)),
    }
