"""All scheduled jobs: importing this package declares them."""

from workers.scheduled import app
from workers.scheduled.tasks import cleanup, custom, samples, signups

__all__ = ["app", "cleanup", "custom", "samples", "signups"]
