"""What several readers share: events of JSON, SQLite, text tables, times."""
