"""A store in the memory of one process: the reference for the other engines, and the simulator's store."""

from pitboss.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
