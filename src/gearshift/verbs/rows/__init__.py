"""Verbs of models that take rows."""
