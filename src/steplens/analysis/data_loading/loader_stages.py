"""What the stages of a batch are called, apart from what measures them: whoever shows figures that were kept needs no more."""

from __future__ import annotations

FETCH, TRANSFORM, COLLATE, TRANSFER, PIN = "fetch", "transform", "collate", "transfer", "pin"
#: stages in the order of a batch
STAGES = (FETCH, TRANSFORM, COLLATE, TRANSFER, PIN)
#: in place of a stage: the training loop uses batches more slowly than the loader makes them
LOOP = "loop"

#: of a loader with fewer batches, such as one of a short validation, nothing can be said
LEAST_BATCHES = 4
