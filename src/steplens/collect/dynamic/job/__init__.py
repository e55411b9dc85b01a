"""What the ranks of a job agree on, and by what they know each other."""
