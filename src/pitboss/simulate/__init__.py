"""Virtual time: runs the production code for a day within moments, for tests and forecasts.

`clock` is a clock that you move · `virtual` is an event loop that never waits · `bound` is the earliest end that limits
allow · `forecast` computes how long a number of tasks takes with a pool of resources.
"""
