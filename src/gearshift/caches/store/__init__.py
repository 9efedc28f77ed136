"""Learned caches as folders on disk."""
