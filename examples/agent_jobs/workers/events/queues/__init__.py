"""The queues of event handlers, with their limits, and the workers that serve them."""

from workers.events import app

DEFAULT, HIGH_PRIORITY, NOTICES = "default", "high_priority", "notices"

app.queue(DEFAULT, capacity=1000, retention="7d")
app.queue(HIGH_PRIORITY, capacity=1000)
# The far side allows no more.
app.queue(NOTICES, capacity=1000, rate="50/s")

# Urgent events have a worker of their own besides: a flood of others does not keep them waiting.
app.pool("events", memory="512MB")
app.pool("urgent", queues=[HIGH_PRIORITY], workers=1, memory="256MB")
