"""A rollout over a fleet, as values: what it leaves on each host, what it reports, a reviewed plan. Pure."""
