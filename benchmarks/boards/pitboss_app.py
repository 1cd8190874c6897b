"""The app that Pitboss runs."""

from pitboss import App

app = App(name="boards")


@app.task(max_attempts=1)
async def work(n: int, word: str, good: bool) -> int:
    if not good:
        raise RuntimeError("no")
    return n
