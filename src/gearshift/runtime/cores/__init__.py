"""Cores that grow and shrink while a worker runs."""
