"""lab: how what ships was made, and how it is measured. It stays in the repository; the wheel holds
``stageb`` alone.

Run it from a checkout's root. It imports ``stageb``, which never imports it
(``tests/test_architecture.py``).

- ``tiny``: trains the shipped model (``stageb/tiny/checkpoint``) and scores it: ``python -m
  lab.tiny.train``, ``.evaluate``
- ``demo``: makes the demo's tickets (``stageb/demo/tickets.jsonl``): ``python -m lab.demo.make``
- ``bench``: speed, and what engines are beside it: ``bin/bench rollout``, ``scale``, ``gate``,
  ``precision``
- ``bench/learning``: learning, and the loop's peers beside it: ``bin/bench learn``, ``noise``,
  ``power``
- ``notes``: what was measured and tried, with date and command

``lab/X`` is tested by ``tests/lab/X``.
"""
