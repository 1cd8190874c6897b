"""A user signed up."""

from pydantic import BaseModel

from app_core import initialize_user_workspace
from workers.events import app, event_handler
from workers.events.queues import DEFAULT


class UserSignup(BaseModel):
    """The data of "user.signup". A publisher that sends something else is refused."""

    user_id: str
    email: str


app.event("user.signup", UserSignup)


@event_handler("user.signup", queue=DEFAULT)
async def handle_signup(event_data):  # type: ignore[no-untyped-def]  # as in the document
    # Process user signup
    user_id = event_data["user_id"]
    # Initialize user resources
    await initialize_user_workspace(user_id)
