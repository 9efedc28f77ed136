"""`gearshift init`: the files that it writes."""
