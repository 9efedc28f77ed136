"""Clients of a server."""
