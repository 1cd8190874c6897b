"""Claim, decide, settle, for whoever has workers: a manager, a server, a simulation. No sockets, no processes."""
