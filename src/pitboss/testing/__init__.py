"""Tools for tests of your handlers, and for writing an engine. Import the modules by name; each says what it needs.

`sandbox` your app on a store in memory · `clock` a clock that the test moves · `virtual` an event loop in virtual
time · `plugin` async tests in pytest · `conformance` the suite that every engine passes · `recorded` an engine that
keeps a `history` of its calls · `checker` checks such a history · `failpoints` faults at named places in an engine.
"""
