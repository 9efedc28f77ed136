"""Plans of operators: their tasks, services, core scaling and planning anew."""
