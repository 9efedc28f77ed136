"""Verbs of language models, which take and make tokens."""
