"""Process groups of a job: what each is for, how fast its collectives are, and how much of them computing hides."""
