"""Several front-end processes that share a port."""
