"""Rules about the training program itself."""
