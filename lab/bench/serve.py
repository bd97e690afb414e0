"""Tickets per second of ``stageb serve``, asked over HTTP by connections that stay open.

``bin/bench serve``: the made-up machines and rules of ``bin/bench rules``, as rows with numbers, in
batches. The service is a process of its own, and so is who asks; both share the cores of this
machine. Requests are written before time runs; each answer is read and its rows are counted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.bench.rows import tell
from lab.bench.rules import MISSION, RANGES, RULES, make_ticket
from stageb.config import require
from stageb.guidance.rules.guidance_json import format_file
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.value_types import read_summaries
from stageb.guidance.words.types import Guidance, Rule
from stageb.job.process import count_cores

DIFFERENT = 200  # batches, which are sent over and over


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bin/bench serve", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long to ask (default 20)")
    parser.add_argument(
        "--batches", default="1,10,100", help="tickets of a request (default 1,10,100)"
    )
    parser.add_argument(
        "--connections", type=int, default=4, help="that ask at the same time (default 4)"
    )
    given = parser.parse_args(arguments)
    require(given.connections >= 1, "--connections", given.connections, "at least 1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rules.json")
        path.write_text(format_file([make_guidance()]))
        line = [sys.executable, "-m", "stageb", "serve", str(path), "--port", "0"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            port = int(service.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
            print(
                f"{len(RULES)} rules, {given.connections} connections, {count_cores()} cores",
                flush=True,
            )
            for size in map(int, given.batches.split(",")):
                measure(port, size, given.connections, given.seconds)
            service.terminate()
    return 0


def make_guidance() -> Guidance:
    """The rules of ``bin/bench rules``, with what they speak of."""
    texts = [WORDS["en"].neutral_headline, *RULES]
    named = [*((name, "0") for name in RANGES), *(("Type", kind) for kind in "HLM")]
    return Guidance(
        MISSION,
        0,
        tuple(Rule(f"G{n}", text) for n, text in enumerate(texts)),
        len(texts),
        named=tuple(named),
    )


def measure(port: int, size: int, connections: int, seconds: float) -> None:
    """Ask with batches of one size, and tell how that went."""
    rows = [
        dict(read_summaries((make_ticket(n).per_image[0][1],)).pairs)
        for n in range(size * DIFFERENT)
    ]
    typed = [
        {name: cell if name == "Type" else float(cell) for name, cell in row.items()}
        for row in rows
    ]
    bodies = [json.dumps(typed[at : at + size]).encode() for at in range(0, len(typed), size)]
    ends = time.perf_counter() + seconds

    def ask(which: int) -> list[float]:
        connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=60), list[float]()
        while (began := time.perf_counter()) < ends:
            connection.request(
                "POST",
                "/judge",
                bodies[(which + len(times)) % DIFFERENT],
                {"content-type": "application/json"},
            )
            answer = connection.getresponse()
            data = answer.read()
            times.append(time.perf_counter() - began)
            assert answer.status == 200 and data.count(b'"verdict": ') == size, data[:300]
        connection.close()
        return times

    with ThreadPoolExecutor(connections) as pool:
        times = [
            each
            for of in pool.map(ask, range(0, DIFFERENT, DIFFERENT // connections))
            for each in of
        ]
    cuts = statistics.quantiles(times, n=100)
    tell(
        {
            "batch": size,
            "tickets/s": size * len(times) / seconds,
            "median ms": 1e3 * cuts[49],
            "p99 ms": 1e3 * cuts[98],
        }
    )
