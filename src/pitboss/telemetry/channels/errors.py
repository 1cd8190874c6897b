"""What a channel raises."""


class SendError(Exception):
    """The message could not be sent. The text is for people, and has no secret in it."""
