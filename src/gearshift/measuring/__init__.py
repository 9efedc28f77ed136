"""Measures models, overheads and a server beside them, for profiles."""
