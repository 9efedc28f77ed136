"""Profiles of the operators of pipelines: whether they fit together, and their folder."""
