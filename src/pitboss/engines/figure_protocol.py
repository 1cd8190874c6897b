"""Figures over time: what happened to tasks, which the store counts itself, and samples, which managers write."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.model.duration import Moment, Span
from pitboss.model.figures import Flow, Sample, SampleKey
from pitboss.model.totals import Totals


@runtime_checkable
class Figures(Protocol):
    """Flows and samples, in buckets of `model.figures`.

    Flows are counted in the act that changes the task, whatever act it is: a put, a follow-up task, a settlement, a
    claim that cancels expired tasks, a sweep, a cancellation, a retry. So they equal a recount at every moment: an act
    that did not happen counts nothing. An act counts in the bucket of 10 s in which it happened, by the store's clock.
    A task that is put counts as `put`; one that becomes completed, failed or cancelled as that; a finished task that
    waits again as `revived`. The end of a claim counts as `lost` if the run was lost with its worker or session, else
    as `retried` if it costs an attempt and the task waits again (`figures.kinds_of_end`).
    """

    async def flows(
        self,
        since: Moment,
        until: Moment,
        *,
        span: Span,
        queue: str | None = None,
        handler: str | None = None,
        by_handler: bool = False,
    ) -> list[Flow]:
        """Flows of all buckets that began from `since` on and before `until`, added up in buckets of `span`, by queue
        and, if asked, by handler; else `handler` is empty. In the order of bucket, queue and handler. Buckets without
        flows are left out. Where flows have been rolled up into longer buckets than `span`, they count at the beginning
        of those."""

    async def add_samples(self, samples: Sequence[Sample]) -> None:
        """Store samples, and add them to the totals. One whose key is stored already changes nothing, so repeating the
        call is harmless."""

    async def totals(self) -> Totals:
        """Flows and samples since the store began, each counted in the act that counts or stores it. Rolling up and
        forgetting changes no total, so each of them only grows. Flows are by queue and handler, in that order, for the
        first that came (`totals.Places`); those of later ones count for the queue, or for all, as `OTHERS`."""

    async def samples(
        self, since: Moment, until: Moment, *, span: Span, limit: int = 100_000, newest: bool = False
    ) -> list[Sample]:
        """The samples of buckets of this length that began from `since` on and before `until`, at most `limit`: the
        oldest, oldest first, then by session; or the `newest`, in the opposite order."""

    async def roll_flows(self, span: Span, into: Span | None, before: Moment, *, term: int) -> bool:
        """Move flows of buckets of `span` that began before `before` into those of `into`, which is longer: those of
        the oldest such bucket. They are added to what it has; handlers beyond `MOST_HANDLERS` of it become one
        (`figures.rolled`). `into` None: forget the flows of the oldest bucket. Returns whether there was one. Only the
        leader of that term may do it: any other call raises `NotLeader` and changes nothing."""

    async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
        """Delete samples, and store others, in one act: if one of `gone` is not stored, nothing happens, and the answer
        is False. One of `made` takes the place of one with its key. Only the leader of that term may do it."""
