"""The HTTP and gRPC servers, and operations on a running one."""
