"""Handlers of events. `from workers.events import event_handler` declares one; `publish` publishes an event."""

from pitboss import App
from workers.settings import Settings

app = App(Settings.load().store, name="events")
event_handler = app.event_handler
publish = app.publish

__all__ = ["app", "event_handler", "publish"]
