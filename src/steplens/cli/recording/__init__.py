"""Commands that record: a script, a running job."""
