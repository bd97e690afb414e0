"""Inputs and outputs of a fit on rank 0."""
