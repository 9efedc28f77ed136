"""Measuring engines of language models from outside, and asking them for answers."""
