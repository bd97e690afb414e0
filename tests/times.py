"""How many times as many examples are drawn: one before every change, more each night
(``.ci/night``)."""

import os

TIMES = int(os.environ.get("STAGEB_HOSTILE_TIMES", "1"))
