"""Replaces the names of users: what is public stays, all else becomes a pseudonym."""
