"""GET /api/figures: the same document as the command line has."""

from collections.abc import Iterator

import pytest

from pitboss.model.figures import RAW, HandlerFigures, Sample, bucket
from pitboss.model.task import NewTask
from tests.http.site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def test_figures_of_all_tasks_and_of_a_queue(site: Site) -> None:
    site.do(site.store.put([NewTask(id="0198c1a0-0000-7000-8000-000000000001", handler="greet", queue="mail")]))
    at = bucket(site.store.clock.now(), RAW) - 2 * RAW
    site.do(
        site.store.add_samples([Sample(at=at, session=1, covered=10, handlers=[HandlerFigures("mail", "greet", 3)])])
    )
    answer = site.http.get("/api/figures", params={"queue": "mail", "since": "2m", "step": "10s"})
    assert answer.status_code == 200
    found = answer.json()["data"]
    assert (found["queue"], found["step"]) == ("mail", 10)
    assert [one for one in found["series"]["started"] if one is not None] == [3]
    assert len(found["at"]) == len(found["series"]["in"])


@pytest.mark.parametrize(
    ("params", "code"), [({"queue": "no"}, 404), ({"pool": "no"}, 404), ({"since": "soon"}, 400), ({"step": "1s"}, 400)]
)
def test_what_cannot_be_read_is_refused(site: Site, params: dict[str, str], code: int) -> None:
    assert site.http.get("/api/figures", params=params).status_code == code
