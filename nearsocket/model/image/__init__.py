"""The patch kit for an engine's image: what it edits, and what a folder that holds the engine looks like against it."""
