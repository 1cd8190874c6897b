"""What must be true at the end: of the tasks, and of what the far side saw."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from demo import load
from demo.audit import Figures
from demo.catalogue import Catalogue

MOST_CONNECTIONS = 3
WRONG = 2  # tasks that must fail
Json = dict[str, Any]


@dataclass(frozen=True)
class Findings:
    """What the run left: all tasks, the killed worker with the task that it held, exit codes, and the audit."""

    tasks: Sequence[Json]
    planned: int
    killed: str
    held: str
    codes: dict[str, int]
    figures: dict[str, Figures]
    units: Sequence[int]
    quota: int
    per_second: float


def checks(found: Findings, catalogue: Catalogue) -> Iterator[tuple[str, bool]]:
    """Each check in words, and whether it holds."""
    yield from _of_tasks(found, catalogue)
    seen = found.figures.values()
    most = max(one.most for one in seen)
    yield f"no worker sent more than {found.per_second:g} requests in any second ({most})", most <= found.per_second
    yield "no request came before the end of a Retry-After", not any(one.too_early for one in seen)
    yield "the quota was used up, and the tasks waited for a new one", any(one.without_quota for one in seen)
    yield "no worker sent anything in that time", not any(one.after_quota for one in seen)
    yield f"no quota of {found.quota:,} units was passed ({max(found.units):,})", max(found.units) <= found.quota
    yield "no worker asked for a video twice", not any(one.asked_twice for one in seen)
    yield "every request had our name", all(one.startswith("video-metadata-worker/") for one in found.figures)
    pooled = all(one.connections <= MOST_CONNECTIONS for one in seen)
    yield f"each worker used at most {MOST_CONNECTIONS} connections", pooled


def _of_tasks(found: Findings, catalogue: Catalogue) -> Iterator[tuple[str, bool]]:
    by_id = {task["id"]: task for task in found.tasks}
    completed = [task for task in found.tasks if task["status"] == "completed"]
    failed = [task for task in found.tasks if task["status"] == "failed"]
    follow_ups = [task["result"]["data"]["metadata_task"] for task in completed if "fetch_metadata" in task["params"]]
    yield "every task has ended", len(completed) + len(failed) == len(found.tasks)
    yield "only the two wrong tasks failed", len(failed) == WRONG and all(map(_is_wrong, failed))
    yield "each search found what there is", all(_search_is_right(task, catalogue) for task in completed)
    yield "each video is a result or an error", all(_metadata_is_right(task, catalogue) for task in completed)
    once = len(set(follow_ups)) == len(follow_ups) and len(by_id) == found.planned + len(follow_ups)
    yield f"each of {len(follow_ups)} searches created its metadata task once", bool(follow_ups) and once
    again = by_id[found.held]
    done_by_another = again["status"] == "completed" and again["claimed_by"] != found.killed
    yield f"another worker did the task of {found.killed}, which was killed", done_by_another
    yield "neither that nor a used-up quota cost an attempt", all(task["attempts"] == 1 for task in found.tasks)
    ended = [code for name, code in found.codes.items() if name != found.killed]
    yield "the other workers stopped when they were asked to", not any(ended)


def _is_wrong(task: Json) -> bool:
    params = task["params"]
    return params.get("search_query") == load.TOO_LONG or params.get("video_ids", [""])[0] in load.UNKNOWN


def _search_is_right(task: Json, catalogue: Catalogue) -> bool:
    params = task["params"]
    if "search_query" not in params:
        return True
    expected = [video.id for video in catalogue.search(params["search_query"])][: params["max_results"]]
    return [one["video_id"] for one in task["result"]["data"]["videos"]] == expected


def _metadata_is_right(task: Json, catalogue: Catalogue) -> bool:
    ids = task["params"].get("video_ids")
    if ids is None:
        return True
    data = task["result"]["data"]
    results = {one["video_id"] for one in data["results"]}
    errors = {one["video_id"] for one in data["errors"]}
    return results == {one for one in ids if catalogue.get(one)} and errors == set(ids) - results


def causes(tasks: Sequence[Json]) -> Counter[str]:
    """Why single videos of completed tasks have no metadata."""
    results = [task["result"]["data"] for task in tasks if task["status"] == "completed"]
    return Counter(error["error"] for data in results for error in data.get("errors", ()))
