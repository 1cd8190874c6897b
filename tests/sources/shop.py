"""An app whose handlers take messages in every form that is allowed."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pitboss import App, ctx

app = App(name="shop")
CAPACITY = 10
app.queue("narrow", capacity=CAPACITY)


class Download(BaseModel):
    """A name that Python cannot have, and fields that it does not know."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    link: str
    from_: str = Field(alias="from")


class Refused(Exception):
    """The message cannot be worked on, however often it is tried."""


@app.task(queue="work", max_attempts=1)
async def work(number: int, bad: bool = False) -> int:
    if bad:
        raise Refused(f"message {number} is refused")
    return number


@app.task(queue="narrow", max_attempts=1)
async def narrow(number: int) -> int:
    return number


@app.task(queue="whole", max_attempts=1)
async def whole(message: dict[str, Any]) -> Any:
    if message.get("bad"):
        raise Refused("the message is refused")
    assert ctx.message is not None
    return [message, ctx.message.headers, ctx.message.id]


@app.task(queue="any_field", max_attempts=1)
async def any_field(**message: Any) -> Any:
    if message.get("bad"):
        raise Refused("the message is refused")
    return message


@app.task(queue="modelled", max_attempts=1)
async def modelled(message: Download) -> list[str]:
    return [message.link, message.from_, str((message.model_extra or {}).get("retryCount"))]


@app.task(queue="parent", max_attempts=1)
async def parent(number: int) -> None:
    """Its follow-ups fail: one of another source's handler, one of its own."""
    if number > 0:
        ctx.enqueue(work, number=number, bad=True)
        ctx.enqueue(parent, number=-number)
    else:
        raise Refused(f"follow-up {number} is refused")
