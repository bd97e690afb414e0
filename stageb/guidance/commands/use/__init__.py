"""Guidance in use: ``predict`` judges tickets, ``evaluate`` says how good that is, ``validate``
looks before a fit."""
