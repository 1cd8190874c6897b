"""Stores. An engine keeps tasks and moves them when it is told; it never decides a retry and never calls a handler."""
