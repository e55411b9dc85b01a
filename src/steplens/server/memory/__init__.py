"""Memory: curves, what is alive, what was planned."""
