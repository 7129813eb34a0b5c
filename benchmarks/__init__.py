"""Timings, each against its peers in one run: `python -m benchmarks NAME --write` keeps them under records/.

A benchmark is a module: `measure` yields its record as it grows, and `tables` shows one as Markdown. What was measured
once, without a program that is kept, is a record that holds its tables.
"""
