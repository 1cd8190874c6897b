"""Tells once when due tasks cannot start, and once when they can again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pitboss.engines.protocol import Clock, Store
from pitboss.model.errors import PitbossError
from pitboss.model.waiting import Trouble
from pitboss.operate.why import read_troubles

LOOK_SECONDS = 2.0
# A look takes no more than this part of the time.
_SHARE = 1 / 20
_MOST_KNOWN = 200


class TroubleLog:
    """Looks every two seconds. `begun` and `ended` get a sentence for each queue and cause, not for each task."""

    def __init__(
        self, engine: Store, clock: Clock, *, begun: Callable[[str], None], ended: Callable[[str], None]
    ) -> None:
        self._engine, self._clock, self._begun, self._ended = engine, clock, begun, ended
        self._known: dict[tuple[str, str], Trouble] = {}

    async def run(self) -> None:
        time, pause = asyncio.get_running_loop().time, LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time()
            # If the store is down, what was told still holds.
            with suppress(PitbossError):
                await self.look()
            pause = max(LOOK_SECONDS, (time() - began) / _SHARE)

    async def look(self) -> None:
        """Look once, also at a task of each known trouble: the others that are looked at may change."""
        examples = [one.example for one in self._known.values()]
        troubles, unseen = await read_troubles(self._engine, self._clock.now(), examples)
        found = {(one.queue, one.cause): one for one in troubles}
        for key, one in found.items():
            if key not in self._known:
                steps = f"; what helps: {'; '.join(one.helps)}" if one.helps else ""
                self._begun(f"{one.said}{steps}")
        for key, one in self._known.items():
            if key not in found and one.queue in unseen:
                found[key] = one
            elif key not in found:
                self._ended(f'tasks of queue "{one.queue}" no longer wait for this: {one.sentence}')
        self._known = dict(list(found.items())[:_MOST_KNOWN])
