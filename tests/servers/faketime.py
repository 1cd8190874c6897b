"""A wall clock of its own for single processes, which the test sets while they run (libfaketime).

Only the wall clock is changed; CLOCK_MONOTONIC and CLOCK_BOOTTIME stay the kernel's. `time.sleep` fails in such a
process: libfaketime 0.9.10 does not know Python's way of sleeping.
"""

from pathlib import Path


class WallClock:
    """`environment` is for the processes; `offset` is how far their wall clock is ahead, in seconds."""

    def __init__(self, folder: Path) -> None:
        library = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
        if library is None:
            raise FileNotFoundError("libfaketime.so.1 was not found; `make faketime` installs it")
        self._file, self.offset = folder / "wall-clock", 0
        self.step(0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Otherwise threads of Python wait for each other five times as long.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: int) -> None:
        """Set the clock ahead, or back by a negative number."""
        self.offset += seconds
        written = self._file.with_suffix(".new")
        written.write_text(f"{self.offset:+d}\n")
        written.chmod(0o644)
        written.replace(self._file)
