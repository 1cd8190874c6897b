"""When jobs run, and what happens if a run is late, missed, or not finished when the next one is due."""

import os
from typing import Any

# At midnight of the users' time zone. One that was missed is made up for once. The start varies by up to a minute, so
# that several installations do not wake the same servers together.
DAILY: dict[str, Any] = {
    "cron": "0 0 * * *",
    "tz": os.environ.get("WORKER_TIMEZONE", "UTC"),
    "catchup": "last",
    "overlap": "skip",
    "jitter": os.environ.get("WORKER_JITTER", "1m"),
}
# A run that takes longer than 15 minutes is not joined by a second one.
EVERY_15_MINUTES: dict[str, Any] = {"cron": "*/15 * * * *", "catchup": "last", "overlap": "skip"}
# Samples of a time that is over are of no use.
SAMPLES: dict[str, Any] = {"every": os.environ.get("WORKER_SAMPLES", "1m"), "catchup": "none", "overlap": "skip"}
