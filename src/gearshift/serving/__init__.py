"""What faces users: the HTTP server and the load generator."""
