"""Policies that watch answers, load and workers."""
