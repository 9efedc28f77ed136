"""OpenAI's API before a plan of language models."""
