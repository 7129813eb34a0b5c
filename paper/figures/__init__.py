"""Figures 1 to 3, the signal at the start, and the timing of the two algorithms."""
