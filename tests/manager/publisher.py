"""An app whose handlers publish to a queue of the broker."""

from pitboss import App

app = App()


@app.task
async def answer(number: int) -> None:
    await app.apublish_to("in_dlq", {"answer": number})


@app.task
def answer_in_thread(number: int) -> None:
    app.publish_to("in_dlq", {"answer": number}, source="one")
