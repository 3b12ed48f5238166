"""Stand-ins of what a GPU server has and a lab machine lacks: GPUs for show, and an engine that behaves as one towards its host."""
