"""Publishes what the app core does."""

from app_core import core
from workers.events.handlers import app
from workers.settings import Settings


def sign_up(email: str) -> str:
    """Store a user, and publish the signup; gives the user's id.

    In one database, both are one transaction. In two, the event is published after the commit; if the process ends
    between the two, `resend_signups` publishes it.
    """
    together = shares_a_database()
    if together:
        # Before the transaction, because nothing else can be written during it: the store learns who handles events.
        app.declare()
    with core.transaction() as connection:
        user_id = core.add_user(connection, email)
        if together:
            app.publish("user.signup", {"user_id": user_id, "email": email}, key=user_id, within=connection)
    if not together:
        publish_signup(user_id, email)
    return user_id


def publish_signup(user_id: str, email: str) -> None:
    """However often this is called, within a day there is one event per user."""
    data = {"user_id": user_id, "email": email}
    app.publish("user.signup", data, key=user_id, idempotency_key=f"signup/{user_id}")


def shares_a_database() -> bool:
    """Whether the app core's tables are in the file of the queue."""
    file = Settings.load().sqlite_file
    return file is not None and file == core.path.resolve()
