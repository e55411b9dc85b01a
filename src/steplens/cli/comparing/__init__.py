"""Commands that lay versions of a program beside each other."""
