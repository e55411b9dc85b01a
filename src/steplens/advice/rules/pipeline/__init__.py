"""Rules about the data pipeline."""
