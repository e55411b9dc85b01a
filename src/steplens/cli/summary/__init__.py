"""``steplens summary``: what it asks, and how the answers look."""
