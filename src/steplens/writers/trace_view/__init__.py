"""The timeline ``trace_view.json``."""
