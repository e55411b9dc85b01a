"""Writes a trace as the files that other tools open; one module per file."""
