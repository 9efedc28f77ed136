"""What people see of a verb's result in a terminal, by kind of engine."""
