"""What leaves the console: notes, reports, files and copies of what is on the screen."""
