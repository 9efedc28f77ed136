"""Networks, chains of segments, and their training."""
