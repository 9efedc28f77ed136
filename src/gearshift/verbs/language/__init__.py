"""Verbs for language models: what `plan`, `simulate`, `compare` and `explain` do with their profiles and plans."""
