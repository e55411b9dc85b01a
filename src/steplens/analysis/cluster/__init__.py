"""The ranks of a job: collectives, who waits for whom, links, how the job is spread over ranks."""
