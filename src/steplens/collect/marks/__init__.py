"""Marks of the user, and those around checkpoints and the like."""
