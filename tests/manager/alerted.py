"""An app whose tasks fail when they are told to, for alerts."""

from typing import Any

from pitboss import App, Fail
from tests.manager.shop import leave, trace

app = App()


@app.task
async def quick(number: int) -> int:
    trace("quick")
    return number


@app.task(max_attempts=1)
async def fails() -> None:
    raise Fail("as it was told")


@app.alert_channel("page")
async def page(alert: dict[str, Any]) -> None:
    leave(f"paged {alert['kind']} {alert['alerts'][0]['rule']}\n")
