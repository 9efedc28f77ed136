"""Verbs for pipelines of several nodes, and for several pipelines at once."""
