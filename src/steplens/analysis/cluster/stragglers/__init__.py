"""What of a job is slower than the rest of it: ranks, hosts, pipeline stages, links; and what waiting for others takes."""
