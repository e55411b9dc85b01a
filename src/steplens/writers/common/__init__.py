"""What writers share: rows, texts, names, links between events."""
