"""Traces from what servers and monitors keep: access logs, counts and series."""
