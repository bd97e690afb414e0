"""How the shipped model was made: ``python -m lab.tiny.train``; ``python -m lab.tiny.evaluate``
scores it.

- ``words``, ``rules``, ``worlds``: words that no one has seen; rules whose meaning is exact;
  synthetic missions of both
- ``examples``: tickets and verdicts to learn from
- ``labels``, ``pool``: what labels follow, and tickets as bit masks; ``stage``: what one reflection
  sees; ``candidates``, ``edits``, ``teacher``: the best edits there are; ``lessons``: reflections
  to learn from
- ``tokens``, ``packing``, ``train``: the tokenizer, rows of tokens, the training
- ``answers``, ``evaluate``: the scores in the checkpoint's README
"""
