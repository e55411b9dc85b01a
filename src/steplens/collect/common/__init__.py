"""What every kind of recording shares: one log, health, paths, clocks, what must never raise into training."""
