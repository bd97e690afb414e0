"""How the shipped model was made: ``python -m lab.tiny.train``; ``python -m lab.tiny.evaluate`` scores it.

- ``words``, ``worlds``: words that no one has seen; synthetic missions of them, with rules whose meaning is exact
- ``examples``: tickets and verdicts to learn from. ``teacher``, ``lessons``: reflections, by the best edits there are
- ``tokens``, ``muon``, ``train``: the tokenizer, the optimizer, the training
- ``evaluate``: the scores in the checkpoint's README
"""
