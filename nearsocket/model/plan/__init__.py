"""Plans: where each replica goes on a host, what holds it there, and why."""
