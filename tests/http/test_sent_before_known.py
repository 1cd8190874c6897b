"""Tasks that an app sends by name before their task type is registered."""

from pitboss.model.task import NewTask
from tests.http.site import Site


def test_they_are_claimed_with_those_that_were_sent_after() -> None:
    """Regression: they were in queue "default" for ever, since workers looked in the queue of the type alone."""
    with Site() as site:
        early = site.server.make_id()
        site.do(site.store.put([NewTask(id=early, handler="thumb", params='{"a":1}')]))
        new = {"name": "thumb", "version": "1.0", "param_schema": {"type": "object"}}
        # A repeated registration keeps what the first one found.
        for _ in range(2):
            answer = site.http.post("/api/task-types/register", json=new)
            assert answer.json()["success"], answer.text
        late = site.http.post("/api/tasks", json={"type": "thumb", "params": {"b": 2}}).json()["data"]["id"]
        asked = [site.http.post("/api/tasks/claim", json={"worker_id": "me"}) for _ in range(2)]
        assert {one.json()["data"]["id"] for one in asked} == {early, late}
