"""What a settlement says beside its transition: where the claim stands, so that the store need not look."""

import msgspec

from pitboss.model.duration import Span
from pitboss.model.outcome import Transition
from pitboss.model.resource import Report
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, Task, Token

_UNHEARD = Transition(state=State.PENDING, outcome="released", recorded=False)


def settling(
    claim: Claim,
    transition: Transition,
    *,
    worker: str | None = None,
    ran: Span | None = None,
    report: Report | None = None,
) -> Settlement:
    """The settlement of a claim."""
    leased = claim.leased
    return Settlement(
        id=claim.id,
        token=claim.token,
        transition=transition,
        worker=worker,
        ran=ran,
        queue=claim.queue,
        batch=claim.batch,
        resource=None if leased is None else leased.id,
        report=report,
    )


def unheard(task: Task, token: Token) -> Settlement:
    """Back with a task that the store gave us in an answer that never came."""
    return Settlement(
        id=task.id, token=token, transition=_UNHEARD, queue=task.queue, batch=task.batch, resource=task.resource
    )


def dated(claim: Claim, asked: float) -> Claim:
    """The claim with the moment at which its resource was asked for, where it matters how old it becomes."""
    leased = claim.leased
    if leased is None or not leased.guard:
        return claim
    return msgspec.structs.replace(claim, leased=msgspec.structs.replace(leased, asked=asked))
