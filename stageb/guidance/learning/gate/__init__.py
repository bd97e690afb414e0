"""Decides which edits may stay.

``decide.py`` is the table of contents: evidence, race (``race.py``), test (``sequential.py``);
``budget.py`` deals out the error rate and the tickets, ``judgements.py`` asks how they are judged.
"""
