"""Engines with continuous batching, simulated step by step."""
