"""The answers of engines: heard, held, judged, and bounded where they are wrong."""
