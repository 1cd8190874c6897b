"""For those who test with Pitboss, or write an engine for it. Import from the modules: each says what it needs.

`clock` a clock under the test's hand · `virtual` an event loop whose time costs nothing · `plugin` async tests in
pytest · `conformance` the suite that every engine passes · `recorded` an engine that keeps a `history` of what it is
asked · `checker` judges such a history · `failpoints` faults at named places in an engine.
"""
