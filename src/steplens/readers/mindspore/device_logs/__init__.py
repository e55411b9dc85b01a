"""Raw device logs of the MindSpore generations before PROF directories."""
