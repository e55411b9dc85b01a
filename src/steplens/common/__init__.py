"""What recording and analysis both need. Standard library only: a training process imports it."""
