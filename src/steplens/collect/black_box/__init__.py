"""The last steps kept in memory, and written when something happens."""
