"""Sends a trace to a server and measures the answers."""
