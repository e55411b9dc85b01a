"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# The time of an example says how busy the machine is, not whether the code is right.
settings.register_profile("steplens", deadline=None)
settings.load_profile("steplens")
