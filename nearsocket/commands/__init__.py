"""One module a command: it reads options, calls the engine room, renders, and returns the exit code."""
