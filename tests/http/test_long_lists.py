"""A list whose filter no index serves ends after many tasks, says so, and goes on."""

from pathlib import Path
from typing import Any

from tests.engines.full_store import fill
from tests.http.site import Site


def test_a_list_that_stopped_goes_on_with_its_cursor(tmp_path: Path) -> None:
    with Site(url=f"sqlite:///{tmp_path}/pitboss.db") as site:
        site.do(fill(site.store, 18_000))

        def listed(**query: Any) -> dict[str, Any]:
            found: dict[str, Any] = site.http.get("/api/tasks", params=query).json()["data"]
            return found

        page = listed(filter="args.n:5")
        assert (page["count"], str(page["covered"])[-1]) == (0, "Z")
        rest = listed(filter="args.n:5", cursor=page["next_cursor"])
        assert (rest["count"], rest["next_cursor"], rest["covered"]) == (1, None, None)
        assert listed(filter="args.n:5", offset=1)["next_cursor"] == page["next_cursor"]
        found = listed(filter="state:failed", limit=5, offset=3)
        assert (found["count"], found["covered"]) == (5, None)
