"""Plans and results as HTML in the cells of notebooks."""
