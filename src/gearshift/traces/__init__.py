"""Traces of load: read from files, or generated."""
