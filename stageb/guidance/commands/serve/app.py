"""The answers of a service: its routes, the limits of a request, and what is counted.

A request names nothing but what its tickets say: no path of it leads to a file, and no key of a
ticket is one.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from stageb.guidance.commands.serve.openapi import write_document, write_page
from stageb.guidance.commands.serve.served import Fault, GuidanceInUse, RequestError
from stageb.guidance.commands.use.config import ServeConfig
from stageb.untrusted import strict_json

EVERY_S = 1.0  # between two looks at the files of guidance
# that judge: a request with long texts keeps few others waiting, and nothing from being told how it
# goes
THREADS = 4
# seconds, of the histogram
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
Labelled = Mapping[tuple[str, ...], int]
"""Counts by the values of their labels."""

REMEDIES = {404: "GET / lists what there is", 405: "GET / lists what there is and how to ask"}


class Metrics:
    """Counters for Prometheus. Used by one thread alone, that of the event loop."""

    def __init__(self, in_use: GuidanceInUse) -> None:
        self._in_use = in_use
        # by mission, rule, verdict and who decides
        self._tickets: Counter[tuple[str, ...]] = Counter()
        self._requests: Counter[tuple[str, ...]] = Counter()  # by status
        self._within = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, status: int, seconds: float, rows: list[dict[str, Any]]) -> None:
        """A request for verdicts that was answered."""
        self._requests[str(status),] += 1
        self._within[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds
        for row in rows:
            self._tickets[
                row["mission"], row["rule"], row["verdict"] or "none", row["decides"] or "unknown"
            ] += 1

    def write(self) -> str:
        """All of it, in the text format of Prometheus."""
        steps: Labelled = {
            (mission,): each.step for mission, each in self._in_use.served.guidance.items()
        }
        reloads: Labelled = {(result,): count for result, count in self._in_use.counts.items()}
        ticket = ("mission", "rule", "verdict", "decides")
        parts = [
            *_write("stageb_tickets_total", "counter", "Tickets judged.", ticket, self._tickets),
            *_write(
                "stageb_requests_total",
                "counter",
                "Requests for verdicts.",
                ("status",),
                self._requests,
            ),
            *_write(
                "stageb_guidance_step", "gauge", "Step of the guidance in use.", ("mission",), steps
            ),
            *_write(
                "stageb_reloads_total",
                "counter",
                "Changed files of guidance.",
                ("result",),
                reloads,
            ),
            *_write(
                "stageb_guidance_refused",
                "gauge",
                "1: a changed file is not in use.",
                (),
                {(): self.is_refused},
            ),
            "# HELP stageb_request_seconds Time to answer a request for verdicts.",
            "# TYPE stageb_request_seconds histogram",
            *self._write_histogram(),
        ]
        return "\n".join([*parts, ""])

    @property
    def is_refused(self) -> int:
        """Whether a changed file of guidance is not in use."""
        return int(bool(self._in_use.refused))

    def _write_histogram(self) -> Iterator[str]:
        so_far = 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self._within, strict=True):
            so_far += count
            yield f'stageb_request_seconds_bucket{{le="{bound}"}} {so_far}'
        yield f"stageb_request_seconds_sum {self._seconds:.6f}"
        yield f"stageb_request_seconds_count {so_far}"


def _write(
    name: str, kind: str, about: str, labels: tuple[str, ...], counts: Labelled
) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for values, count in sorted(counts.items()):
        named = ",".join(
            f'{label}="{_escape(value)}"' for label, value in zip(labels, values, strict=True)
        )
        yield f"{name}{{{named}}} {count}" if named else f"{name} {count}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Service:
    """A service that answers requests."""

    def __init__(
        self, config: ServeConfig, in_use: GuidanceInUse, tell: Callable[[str], None]
    ) -> None:
        """``tell`` shows a line to whoever runs the service."""
        self._config, self._in_use, self._tell = config, in_use, tell
        self._metrics = Metrics(in_use)
        self._pool = ThreadPoolExecutor(THREADS, "stageb-judge")

    def make_app(self) -> Starlette:
        """The application, as ASGI servers run it."""
        routes = [
            Route("/judge", self._judge, methods=["POST"]),
            Route("/health", self._say_health),
            Route("/metrics", self._say_metrics),
            Route("/openapi.json", self._say_document),
            Route("/", self._say_page),
        ]
        return Starlette(
            routes=routes, lifespan=self._live, exception_handlers={HTTPException: _say_wrong}
        )

    @asynccontextmanager
    async def _live(self, app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _watch(self) -> None:
        """Take guidance into use as its files change."""
        while True:
            await asyncio.sleep(EVERY_S)
            if self._in_use.has_changed():
                self._tell(await asyncio.to_thread(self._in_use.reload))

    async def _judge(self, request: Request) -> Response:
        began, rows = time.perf_counter(), list[dict[str, Any]]()
        try:
            data = await self._read(request)
            judged = asyncio.get_running_loop().run_in_executor(self._pool, self._answer, data)
            rows, answer = await judged
            response = Response(answer, media_type="application/json")
        except RequestError as error:
            response = _say_faults(error)
        self._metrics.add(response.status_code, time.perf_counter() - began, rows)
        return response

    async def _read(self, request: Request) -> bytes:
        """The body of a request. Raises ``RequestError`` where it is none of JSON, too long, or
        does not come in time."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(
                415,
                [
                    Fault(
                        "",
                        f"content-type {kind!r}",
                        "send JSON, with content-type: application/json",
                    )
                ],
            )
        most, data = 1024 * self._config.max_kib, bytearray()
        too_long = Fault(
            "", f"a request of more than {self._config.max_kib} KiB", "send fewer tickets at once"
        )
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > most:
            raise RequestError(413, [too_long])
        try:
            async with asyncio.timeout(self._config.max_seconds):
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > most:
                        raise RequestError(413, [too_long])
        except TimeoutError:
            what = f"a request that did not come within {self._config.max_seconds:g} s"
            raise RequestError(408, [Fault("", what, "send it at once")]) from None
        except ClientDisconnect:
            raise RequestError(
                400, [Fault("", "a request that ended before its end", "send all of it")]
            ) from None
        return bytes(data)

    def _answer(self, data: bytes) -> tuple[list[dict[str, Any]], bytes]:
        """The rows of a request's tickets, and the same as JSON. Raises ``RequestError``."""
        served = self._in_use.served  # of one moment for all of them
        said = _parse(data)
        is_batch = isinstance(said, list)
        tickets = said if isinstance(said, list) else [said]
        if len(tickets) > self._config.max_tickets:
            what = f"{len(tickets)} tickets, more than {self._config.max_tickets}"
            raise RequestError(413, [Fault("", what, "send fewer at once")])
        rows = served.judge_all(tickets, is_batch, time.monotonic() + self._config.max_seconds)
        return rows, json.dumps(rows if is_batch else rows[0], ensure_ascii=False).encode()

    async def _say_health(self, request: Request) -> Response:
        served = self._in_use.served
        missions = {
            mission: {
                "step": each.step,
                "rules": len(each.rules) - 1,
                "promise": promise.describe()
                if (promise := served.rows.promises.get(mission))
                else None,
            }
            for mission, each in served.guidance.items()
        }
        return JSONResponse(
            {"status": "ok", "missions": missions, "refused": self._in_use.refused or None}
        )

    async def _say_metrics(self, request: Request) -> Response:
        return PlainTextResponse(self._metrics.write(), media_type="text/plain; version=0.0.4")

    async def _say_document(self, request: Request) -> Response:
        return JSONResponse(write_document(self._in_use.served, self._config))

    async def _say_page(self, request: Request) -> Response:
        return HTMLResponse(write_page(write_document(self._in_use.served, self._config)))


def _parse(data: bytes) -> Any:
    """Read the body of a request. Raises ``RequestError``."""
    remedy = "write a ticket as a JSON object, or several as a list of objects"
    try:
        text = data.decode()
        return strict_json.loads(text)
    except UnicodeDecodeError as error:
        fault = Fault(f"byte {error.start}", "not UTF-8", "send UTF-8")
    except json.JSONDecodeError as error:
        fault = Fault(f"line {error.lineno} column {error.colno}", f"not JSON: {error.msg}", remedy)
    except ValueError as error:
        line = strict_json.find_fault(text)
        fault = Fault(f"line {line}" if line else "", f"not JSON: {error}", remedy)
    raise RequestError(400, [fault])


def _say_faults(error: RequestError) -> Response:
    """The answer to a request that is wrong; one that was not read to its end leaves nothing to go
    on with."""
    headers = {"connection": "close"} if error.status in (408, 413, 415) else None
    return JSONResponse(
        {"faults": [asdict(fault) for fault in error.faults]}, error.status, headers
    )


async def _say_wrong(request: Request, error: Exception) -> Response:
    """The same of a request that no route takes."""
    assert isinstance(error, HTTPException)
    remedy = REMEDIES.get(error.status_code, "see GET /openapi.json")
    return _say_faults(RequestError(error.status_code, [Fault("", error.detail, remedy)]))
