"""The page about plans of language models."""
