"""Meter, gears, queues and dispatch."""
