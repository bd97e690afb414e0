"""How the shipped model was made: ``python -m lab.tiny.train``; ``python -m lab.tiny.evaluate`` scores it.

- ``words``, ``rules``, ``worlds``: words that no one has seen; rules whose meaning is exact; synthetic missions of both
- ``examples``: tickets and verdicts to learn from. ``teacher``, ``lessons``: reflections, by the best edits there are
- ``tokens``, ``packing``, ``muon``, ``train``: the tokenizer, rows of tokens, the optimizer, the training
- ``evaluate``: the scores in the checkpoint's README
"""
