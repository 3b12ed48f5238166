"""A change over a fleet, host by host, stopped at the first failure: who comes when, one host's phases, what is kept there."""
