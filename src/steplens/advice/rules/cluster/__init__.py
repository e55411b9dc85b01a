"""Rules about many ranks."""
