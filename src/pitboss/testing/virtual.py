"""An event loop in virtual time: a day of retries runs in milliseconds."""

from pitboss.simulate.virtual import VirtualLoop, VirtualTimeError, run_virtual

__all__ = ["VirtualLoop", "VirtualTimeError", "run_virtual"]
