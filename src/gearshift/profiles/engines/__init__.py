"""Engines with continuous batching: how long their steps take, and what they hold."""
