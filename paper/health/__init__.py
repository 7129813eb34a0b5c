"""Studies of `diagnose` and `watch`: how often they are right, and what they make of models other people wrote."""
