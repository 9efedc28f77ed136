"""Plans that refine while there is time."""
