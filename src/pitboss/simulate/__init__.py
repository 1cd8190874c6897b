"""Virtual time: production code that runs a day in a moment, to test it or to ask what a day would bring.

`clock` a clock under your hand · `virtual` an event loop whose time costs nothing · `bound` the soonest that limits
allow · `forecast` how long so many tasks will take on such a pool of resources.
"""
