"""Tables 1, 2, 3 and 5, their published numbers, and how ours compare."""
