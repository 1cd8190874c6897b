"""Claim, decide, settle: for a manager, a server or a simulation. No sockets, no processes."""
