"""Metrics and the journal."""
