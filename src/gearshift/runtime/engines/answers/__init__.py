"""The answers of engines, as far as they can be wrong: without end, too large, cut amid a character."""
