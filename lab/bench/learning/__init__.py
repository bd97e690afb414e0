"""How well guidance is learnt: this loop beside its peers, on the same tickets, with the same model
and as many rollouts.

- ``missions``, ``data``: synthetic missions with hidden rules, and tickets from files; split by the
  loop's own function.
- ``method``: what a method is given and what it hands back; ``METHODS`` in ``cells`` is the table.
- ``ours``, ``gepa_peer``: the methods. ``proposer`` asks the model for edits, for the peers
  as for the loop, and makes rules of the evidence without a model.
- ``classic``: a decision tree and a rule list, as what rules can reach.
- ``cells``: one method on one data set with one seed; many at once, a process each; a finished one
  is not run again.
- ``learn``, ``noise``, ``power``: the commands. ``figures`` and ``plot`` make their tables and
  pictures.

A rollout is one ticket judged once by the model, sampled or greedily. What only measures (test
accuracy along the way) costs no method anything.
"""
