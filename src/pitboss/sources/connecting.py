"""How often to try a broker that is away."""

import asyncio
from collections.abc import Callable

# Seconds before the second, third, fourth try; then always the last.
_PAUSES = (1.0, 2.0, 4.0)
_SHORTEST = 0.75
# After these a new process takes over if nothing of this one is connected, because the fault may be in it.
TRIES = 10


class Tries:
    """Counts failed tries in a row, and waits between them. `worn_out` is called after `TRIES` of them, and after each
    further one."""

    def __init__(self, luck: Callable[[], float], worn_out: Callable[[str], None]) -> None:
        self._luck, self._worn_out = luck, worn_out
        self._failed = 0

    def succeeded(self) -> None:
        self._failed = 0

    async def pause(self, why: str) -> None:
        """After a failed try. The pause is spread, so that not all processes come back at once."""
        base = _PAUSES[min(self._failed, len(_PAUSES) - 1)]
        self._failed += 1
        if self._failed >= TRIES:
            self._worn_out(f"{TRIES} tries to reach the broker have failed: {why}")
        await asyncio.sleep(base * (_SHORTEST + (1 - _SHORTEST) * self._luck()))
