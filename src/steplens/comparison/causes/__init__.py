"""What explains the change of a step: named causes, which are disjoint and add up with what none of them has."""
