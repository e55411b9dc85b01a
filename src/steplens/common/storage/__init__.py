"""Where data lies: local files as they are, and places behind URLs, whose files are read in ranges where they lie."""
