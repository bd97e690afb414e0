#!/usr/bin/env python
"""``stageb fit`` as a file, for launchers that take one: ``fabric run bin/fit.py --config ...``,
torchrun, srun.

Works from a checkout that is not installed, and always runs the checkout that it lies in.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stageb.__main__ import script

if __name__ == "__main__":
    sys.exit(script(["fit", *sys.argv[1:]]))
