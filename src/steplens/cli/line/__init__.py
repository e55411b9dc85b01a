"""The command line itself: how a line is parsed, what is refused before anything is done, and how help looks."""
