"""Benchmarks: ``python -m lab.bench`` (or ``bin/bench``) lists them.

They measure what users wait for, through the same world that the loops stand on, and print what
they measured together with the machine they measured it on.
"""
