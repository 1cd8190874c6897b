"""All handlers of events: importing this package declares them."""

from workers.events import app
from workers.events.handlers import custom, dead_letters, messages, notices, signup

__all__ = ["app", "custom", "dead_letters", "messages", "notices", "signup"]
