"""Arithmetic and changing shapes of operators."""
