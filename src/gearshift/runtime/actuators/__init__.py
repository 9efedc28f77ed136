"""Changing a worker's cores while it serves: one interface, whatever carries the change out."""
