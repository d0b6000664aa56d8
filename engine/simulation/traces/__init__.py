"""Other people's traces and measurements, read into this project's values."""
