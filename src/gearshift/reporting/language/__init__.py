"""Pages about plans of language models, and their words."""
