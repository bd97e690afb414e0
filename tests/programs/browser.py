"""A headless Chromium, driven over a pipe by the DevTools protocol:
https://chromedevtools.github.io/devtools-protocol/."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

COMMAND = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars "
    "--remote-debugging-pipe"
).split()
SLOW_S = 60.0  # for an answer, on a busy machine


class Browser:
    """One tab. ``events`` holds what it told since the last ``open``."""

    def __init__(self, folder: Path) -> None:
        """Start it; ``folder`` is an empty one for its profile."""
        assert COMMAND is not None
        self._from, told = os.pipe()
        asked, self._to = os.pipe()
        # It reads from descriptor 3 and writes to 4; the pipe's own ends are out of their way.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (asked, told)]
        line = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", COMMAND, *OPTIONS, f"--user-data-dir={folder}"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (asked, told, *theirs):
            os.close(end)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its result."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while (message := self._message()).get("id") != self._number:
            self.events.append(message)
        assert "error" not in message, message
        return dict(message["result"])

    def open(self, page: Path, width: int, dark: bool) -> None:
        """Show a file on a screen so wide, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not self.told("Page.loadEventFired"):
            self.events.append(self._message())

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """The events of some kinds."""
        return [event for event in self.events if event.get("method") in methods]

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, whose own policy does not bind this."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path: Path, whole: bool = True) -> None:
        """A PNG file of the page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + SLOW_S
        while b"\0" not in self._rest:
            assert time.monotonic() < deadline, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(first))
