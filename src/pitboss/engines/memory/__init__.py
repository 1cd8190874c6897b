"""Everything in this process's memory: the oracle of the tests and the simulator's store. Nothing survives."""

from pitboss.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
