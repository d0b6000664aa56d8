"""Live answers: ranked frames, followed events, a window carried away."""
