"""Pages that a server shows to people: plain HTML, with nothing from elsewhere."""
