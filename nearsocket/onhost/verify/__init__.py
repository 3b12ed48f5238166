"""The proof at every start: `start` runs in the unit, `watch` by a timer, `hand` for a person. Empty, so that each loads alone."""
