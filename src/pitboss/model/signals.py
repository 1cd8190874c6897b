"""What a handler raises to say something other than success or failure. Signals are not errors."""

from pitboss.model.duration import Span, Time, span


class Signal(BaseException):
    """Base of the signals. Outside `Exception`, so that a handler's own `except Exception` does not swallow one."""


class Retry(Signal):
    """Try again, after a time of my choice or the policy's. Costs an attempt; fails when they are used up."""

    def __init__(self, reason: str = "", *, after: Time | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after: Span | None = None if after is None else span(after, what="Retry(after=…)")


class Snooze(Signal):
    """Not now: run again after this time. Costs no attempt."""

    def __init__(self, delay: Time, reason: str = "") -> None:
        super().__init__(reason)
        self.delay: Span = span(delay, what="Snooze(delay)")
        self.reason = reason


class Cancel(Signal):
    """Give up for good, without calling it a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Fail(Signal):
    """Failed for good: do not try again, whatever the policy says."""

    def __init__(self, reason: str = "", *, category: str = "error") -> None:
        super().__init__(reason)
        self.reason, self.category = reason, category


class ResourceSignal(Signal):
    """Base of the signals about the resource that a handler holds."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RateLimited(ResourceSignal):
    """The far side asks for a pause: the member cools down, and the task goes on with another one, at no cost."""

    def __init__(self, reason: str = "", *, retry_after: Time | None = None) -> None:
        super().__init__(reason)
        self.retry_after: Span | None = None if retry_after is None else span(retry_after, what="retry_after")


class Blocked(ResourceSignal):
    """The far side refuses this member: it cools down and comes closer to the blacklist. Costs an attempt."""


class ResourceFailed(ResourceSignal):
    """The member itself does not work (a dead proxy, an expired account). Costs an attempt."""
