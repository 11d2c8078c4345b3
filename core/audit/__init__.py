"""A table of measurements against itself: raw columns in, derived ones out, and where the printed ones contradict them."""
