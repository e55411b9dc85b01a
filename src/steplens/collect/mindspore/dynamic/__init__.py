"""Captures of a running training, on request."""
