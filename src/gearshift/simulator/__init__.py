"""The simulator: the policies compiled into one event loop."""
