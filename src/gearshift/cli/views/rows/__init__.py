"""Verbs for graphs and for several pipelines."""
