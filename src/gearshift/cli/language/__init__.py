"""What the verbs print for language models."""
