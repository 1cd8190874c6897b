"""A worker that speaks only HTTP: it could run on any machine. `make demo` starts it beside the manager."""

import random
import time
from typing import Any, ClassVar

from pitboss.remote import TaskProcessingError, Worker

REFUSED = 0.1


class Thumbnails(Worker):
    """Makes thumbnails, or would. Some pictures fail and are tried again."""

    task_types: ClassVar = {"thumbnail": {"type": "object", "required": ["picture"]}}

    def process_task(self, task: dict[str, Any]) -> dict[str, Any]:
        picture = task["params"]["picture"]
        for percent in (25, 50, 75):
            time.sleep(0.2)
            self.update_progress(task["id"], percent, f"scaling {picture}")
        if random.random() < REFUSED:
            raise TaskProcessingError(f"{picture} is not a picture", retryable=True)
        return {"thumbnail": f"small-{picture}"}
