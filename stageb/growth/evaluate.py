"""``stageb evaluate RUN``: what a run's controller is worth, beside others at equal FLOPs, on environments held out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from stageb import __main__ as commands
from stageb import disk
from stageb import world as worlds
from stageb.config import FabricConfig, require
from stageb.errors import InputError
from stageb.figures import interval, short, wilson
from stageb.growth import devices
from stageb.growth.compare import OTHERS, Outcome, compare, plain
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import Decider
from stageb.growth.environment import Places, Setting
from stageb.growth.schedule import cut
from stageb.growth.stored import Stored, stored
from stageb.world import World, decode, encode

FIRST = 10_000  # environment, so that none is among those by which a run is watched
