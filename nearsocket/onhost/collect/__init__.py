"""Reading one server: a module for each kind of source, `whole` for all of them. Empty, so that one module can be had alone."""
