"""Timings, each against its peers in one run: `python -m benchmarks NAME --write` keeps them under records/.

A benchmark is a module: `measure` yields its record as it grows, `tables` shows one as Markdown, and `section` is its
part of docs/performance.md, from what was kept. Of what was measured once, the record and its tables are here.
"""
