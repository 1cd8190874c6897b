"""Pure values and rules: no I/O, no await, no clock, no randomness, no logging, no other room."""
