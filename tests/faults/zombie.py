"""A process that claims, keeps its session alive, is stopped by a signal, and speaks when it is too late.

Run as a program with a store's URL. It prints its session when it holds the tasks; told to speak, it prints what each
of its words came to.
"""

import asyncio
import sys

import msgspec

from pitboss.dispatch.session_keeper import SessionKeeper
from pitboss.model.errors import SessionLost
from pitboss.model.outcome import Completed, Failed, Outcome, Released, Snooze, Transition, decide, progressed
from pitboss.model.policy import Policy
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError
from pitboss.wiring import SystemClock, make_engine

HANDLER = "job"
TTL = 1_000_000
WORDS = ("completed", "failed", "progress", "snoozed", "released")


class Spoken(msgspec.Struct):
    """Whether each word was accepted, and what else the zombie was told."""

    accepted: dict[str, bool]
    why: dict[str, str | None]
    renewed: bool
    claimed: bool


def _said(word: str, claim: Claim) -> Transition:
    if word == "progress":
        return progressed(50, "half")
    error = TaskError(category="net", message="connection reset")
    outcomes: dict[str, Outcome] = {"completed": Completed('"late"'), "failed": Failed(error), "snoozed": Snooze(1000)}
    return decide(claim, outcomes.get(word, Released(started=True)), Policy(max_attempts=1), SystemClock().now(), 0.5)


async def main(url: str) -> None:
    engine = make_engine(url)
    await engine.open()
    session = await engine.open_session(SessionInfo(host="zombie", handlers=(HANDLER,), ttl=TTL))
    keeper = SessionKeeper(session.number, TTL, told=lambda _: None, lost=lambda: None)
    keeping = asyncio.create_task(keeper.keep(engine))
    request = ClaimRequest(session=session.number, slots=(Slot(free=len(WORDS)),))
    claims = (await engine.claim(request)).claims
    # Longer than a session lives without renewing: it is the stop that will end it, not neglect.
    await asyncio.sleep(1.5 * TTL / 1_000_000)
    sys.stdout.write(f"{session.number}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    keeper.stop()
    await keeping
    spoken = Spoken({}, {}, renewed=(await engine.renew(session.number)).alive, claimed=True)
    for word, claim in zip(WORDS, claims, strict=True):
        (verdict,) = await engine.settle([Settlement(id=claim.id, token=claim.token, transition=_said(word, claim))])
        spoken.accepted[word], spoken.why[word] = verdict.applied, verdict.why
    try:
        await engine.claim(request)
    except SessionLost:
        spoken.claimed = False
    sys.stdout.write(msgspec.json.encode(spoken).decode() + "\n")
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
