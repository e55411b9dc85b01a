"""The analyses: one module per question, pure functions of a trace."""
