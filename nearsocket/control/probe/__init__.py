"""Probes from the control side: read the host, refuse where somebody is in the way, order, judge."""
