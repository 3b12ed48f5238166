"""Making a generation real on a server: one program run, all or nothing, nothing at all where nothing changed."""
