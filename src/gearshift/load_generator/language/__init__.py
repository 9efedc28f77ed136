"""Traces sent to servers of language models, whose answers are streamed."""
