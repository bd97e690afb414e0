"""The page in a real browser: on a wide screen and on a phone, light and dark. Skips where there is
no Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guidance.commands.report.runs import MISSIONS
from programs.browser import COMMAND, Browser

from stageb.guidance.commands.report import REPORT

pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium on this machine")
SCREENS = [(1280, False), (1280, True), (390, False), (390, True)]
LOADED_MS = 2000

FAULTS = Path(__file__).with_name("faults.js").read_text("utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_it_looks_well(browser: Browser, root: Path, width: int, dark: bool) -> None:
    report = root / "run" / REPORT
    browser.open(report, width, dark)
    found: dict[str, Any] = browser.evaluate(FAULTS)
    assert found["faults"] == []
    assert found["charts"] == 1 + 3 * len(MISSIONS)
    assert found["scripts"] == 0
    assert found["load"] < LOADED_MS
    assert found["scheme"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    asked = [
        event["params"]["request"]["url"] for event in browser.told("Network.requestWillBeSent")
    ]
    assert asked == [report.absolute().as_uri()]
    told = browser.told(
        "Log.entryAdded",
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Page.javascriptDialogOpening",
    )
    assert told == [], json.dumps(told)
