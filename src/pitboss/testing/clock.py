"""A clock that moves only when the test moves it."""

from pitboss.simulate.clock import START, FakeClock

__all__ = ["START", "FakeClock"]
