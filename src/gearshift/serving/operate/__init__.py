"""What is done with a running server, and what it knows of kinds of plans."""
