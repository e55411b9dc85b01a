"""Makes traces of training jobs of many ranks, with seeded faults and a record of the truth.

Usage, in the root of the repository: ``python -m benchmarks.jobs OUT --ranks 64 --steps 3 --fault slow_rank:rank=5``

A job is simulated on one true clock (``simulation``), from what every pipeline stage calls (``program``); what its ranks would
have recorded is written as Kineto's files or as run directories of steplens (``writing``), with the time stamps of each host's
own clock. ``truth.json`` and two tables beside it say what happened.
"""
