"""Planning a pipeline as one: tuples of implementations, and what they are worth together."""
