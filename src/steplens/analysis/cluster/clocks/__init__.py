"""The clocks of the ranks of a job, brought onto one with error bars, from the messages that the ranks exchanged."""
