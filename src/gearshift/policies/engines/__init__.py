"""Decisions about engines with continuous batching: within one, and between several."""
