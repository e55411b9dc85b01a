"""Single operations of a data pipeline."""
