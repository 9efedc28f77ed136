"""Profiles of language models from records that others made."""
