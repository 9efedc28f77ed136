"""Changes a worker's cores while it serves: one interface, several mechanisms."""
