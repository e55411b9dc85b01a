"""Result tables as CSV files."""
