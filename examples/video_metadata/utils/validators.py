"""Checks of task params. Each returns the value to use, or raises an error that no retry can cure."""

import re
from typing import Any

from pitboss.remote import TaskValidationError

LONGEST_QUERY = 200
MOST_RESULTS = 50
MOST_VIDEOS = 500
_VIDEO_ID = re.compile(r"[\w-]{11}", re.ASCII)


class InvalidParams(TaskValidationError, ValueError):
    """The params of a task cannot be used."""


def validate_search_query(query: object) -> str:
    """The query without special characters; refused if it is empty or longer than 200 characters."""
    if not query or not isinstance(query, str):
        raise InvalidParams("Invalid search query")
    query = re.sub(r"[^\w\s-]", "", query)
    if len(query) > LONGEST_QUERY:
        raise InvalidParams("Search query too long")
    if not query.strip():
        raise InvalidParams("Search query has no letters or digits")
    return query.strip()


def validate_max_results(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_RESULTS:
        raise InvalidParams(f"max_results must be an integer between 1 and {MOST_RESULTS}")
    return value


def validate_video_ids(value: object) -> list[str]:
    """The ids without repetitions. What is wrong with a single id is told by `is_video_id`, item by item."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidParams("video_ids must be a list of texts")
    if not 1 <= len(value) <= MOST_VIDEOS:
        raise InvalidParams(f"video_ids must have 1 to {MOST_VIDEOS} ids, not {len(value)}")
    return list(dict.fromkeys(value))


def is_video_id(value: str) -> bool:
    return _VIDEO_ID.fullmatch(value) is not None


def require(params: dict[str, Any], *names: str) -> None:
    """Refuse params without these names."""
    missing = [name for name in names if name not in params]
    if missing:
        raise InvalidParams(f"Missing required parameters: {', '.join(missing)}")
