"""The ranks of a job, their communication and their strategy."""
