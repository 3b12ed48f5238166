"""The tests. `tests.build` makes hosts for the checks."""
