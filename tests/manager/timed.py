"""An app with a schedule that ticks every second, drops no tick and never waits for an earlier one."""

from pitboss import App

app = App()


@app.scheduled_task(every="1s", overlap="allow", catchup="all")
async def tick() -> None: ...
