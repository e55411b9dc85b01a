"""Every table: its rows, filtered, sorted and paged."""
