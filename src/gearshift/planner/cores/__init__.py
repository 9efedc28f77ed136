"""Plans whose gears change cores."""
