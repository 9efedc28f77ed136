"""Files that `gearshift init` writes."""
