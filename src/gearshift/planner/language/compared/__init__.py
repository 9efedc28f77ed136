"""Plans of language models explained, and held beside others and a control."""
