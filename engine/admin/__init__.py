"""The operator's API: changes made live, the overlay that keeps them, its door and commands."""
