"""Judging what the probes measured: pure, from the numbers to findings."""
