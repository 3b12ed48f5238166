"""The probes' programs on a server: a group of ranks, and what starts it, watches it and ends it."""
