"""Bounds, keys, headers and sockets, which HTTP and gRPC share."""
