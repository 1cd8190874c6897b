"""Drawing: items of running batches become pending, as many as a claim wants."""

from typing import NamedTuple

from pitboss.engines.postgres.claim import asked_queues
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.batching import PASSED_BY
from pitboss.model.duration import Moment
from pitboss.model.session import ClaimRequest


class Drawn(NamedTuple):
    """How many were drawn; `again` is the moment if more must be drawn at once, as none became pending."""

    number: int = 0
    again: Moment | None = None


def draw(say: Statements, request: ClaimRequest, now: Moment | None) -> Script[Drawn]:
    """Within a transaction of its own, before the claim: batches are locked before tasks."""
    queues = asked_queues(request)
    ((alive, _),) = yield say.ask("drawable", now, session=request.session, queues=queues)
    if not alive:
        return Drawn()
    found = yield say.ask("lock_drawable", queues=queues)
    if not found:
        return Drawn()
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    ids = texts([row[0] for row in found])
    asked = say.ask("draw", now, ids=ids, queues=queues, wanted=wanted, beyond=PASSED_BY)
    ((number, pending, more, moment),) = yield asked
    return Drawn(number, moment if number and not pending and more else None)
