"""A clock that moves only when it is told to."""

from pitboss.simulate.clock import START, FakeClock

__all__ = ["START", "FakeClock"]
