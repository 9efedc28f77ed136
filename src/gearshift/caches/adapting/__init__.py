"""Keeps learned caches right while the data changes."""
