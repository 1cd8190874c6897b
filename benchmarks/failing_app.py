"""The app of `operations`: a handler whose tasks fail for good at once."""

from pitboss import App

app = App(name="failing")


@app.task(max_attempts=1)
async def broken(n: int) -> None:
    raise RuntimeError("no")
