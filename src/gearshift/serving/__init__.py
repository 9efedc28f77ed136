"""The HTTP and gRPC servers, and the load generator."""
