"""Profiles: measured or imported run times and predictions of models, and how they lie on disk."""
