"""A driver upgrade over a fleet: a rollout's job, with a reboot of its own in it."""
