"""Judges candidate plans by simulation."""
