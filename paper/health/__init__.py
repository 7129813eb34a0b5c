"""How often `diagnose` and `watch` are right, on networks and faults of ours, and on models other people wrote.

The networks are rows of the records under benchmarks/records/; `python -m paper.health NAME` says what is said of each
of them now, and where that differs from the record.
"""
