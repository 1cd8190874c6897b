"""Batches in a lane, a schedule that has fired, and an event with a delivery, for tests of pages."""

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import NewBatch, Pause
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from pitboss.model.schedule import ScheduleChange, ScheduleSpec, firing
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask

BATCHES = tuple(f"0198c1a0-0000-7000-8000-00000000b00{number}" for number in range(4))
EVENT = "0198c1a0-0000-7000-8000-00000000e001"
PAGES = [
    "/batches",
    "/batches?status=ended",
    "/batches?status=queued&rows=100",
    "/schedules",
    "/events",
    "/events?name=user.signup",
]
DETAILS = [
    "/queues/mail",
    "/queues/scrape?since=15m",
    "/queues/media?since=24h",
    *(f"/batches/{one}" for one in (BATCHES[0], BATCHES[1], BATCHES[3])),
    "/schedules/often",
    "/schedules/nightly",
    f"/events/{EVENT}",
]


async def furnish_batches(store: FullStore, hostile: str) -> None:
    text = msgspec.json.encode({"of": hostile}).decode()
    for number, batch in enumerate(BATCHES):
        items = [
            NewTask(
                id=f"0198c1a0-0000-7000-8000-0000000{number}{place:04}", handler="send", queue="scrape", params="{}"
            )
            for place in range(4)
        ]
        then = NewTask(id=f"0198c1a0-0000-7000-8000-00000000f00{number}", handler="send", queue="mail", params="{}")
        new = NewBatch(id=batch, name=f"{hostile}{number}", lane="night", data=text, by=hostile, on_complete=then)
        await store.create_batch(new, items)
    await store.act_on_batch(BATCHES[3], Pause(hostile))
    await store.change_queue("media", QueueChange(rate=rate("10/s"), capacity=50))
    await store.declare(
        Declared(
            app="shop", subscriptions=(Subscription(handler="send", pattern="user.*", queue="scrape", ordered=True),)
        )
    )
    await store.publish([NewEvent(id=EVENT, name="user.signup", data=text, key=hostile, by=hostile)])
    await store.put_schedule(ScheduleSpec(name="nightly", handler="send", cron="0 3 * * *", params=text))
    often = await store.put_schedule(ScheduleSpec(name="often", handler="send", queue="scrape", every=3600 * SECOND))
    leader = await store.open_session(SessionInfo(host="box2", pid=2, ttl=3600 * SECOND))
    due = firing(often, None, often.next_at or 0, {})
    assert due is not None
    assert await store.fire([due], term=(await store.campaign(leader.number)).term) == [True]
    await store.end_session(leader.number)
    await store.change_schedule("nightly", ScheduleChange(paused=True, by=hostile, reason=hostile))
