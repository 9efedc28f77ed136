"""Explores, chooses and trains learned caches."""
