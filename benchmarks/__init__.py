"""Benchmarks: `python -m benchmarks` (or `make bench`) compares routes within one run."""
