"""The page in a real browser: on a wide screen and on a phone, light and dark. Skips where there is no Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guidance.report import runs
from guidance.report.runs import CHINESE, HOSTILE, fit
from programs.browser import COMMAND, Browser

from stageb.guidance.report import REPORT

pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium on this machine")
SCREENS = [(1280, False), (1280, True), (390, False), (390, True)]
LOADED_MS = 2000

# What is looked at stands in the page: CSP keeps the page's own scripts out, not these.
FAULTS = r"""
(() => {
  const faults = [];
  const name = (node) => `${node.tagName}.${node.getAttribute("class")} ${node.textContent.trim().slice(0, 40)}`;
  const wide = () => {
    if (document.documentElement.scrollWidth > innerWidth) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
    for (const node of document.body.querySelectorAll("*")) {
      const box = node.getBoundingClientRect();
      if (box.width && !node.closest("thead") && (box.right > innerWidth + 1 || box.left < -1)) faults.push(`out of the page: ${name(node)}`);
    }
  };
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  wide();
  const charts = [...document.querySelectorAll("svg.chart")];
  for (const chart of charts) {
    const title = chart.querySelector("title").textContent, frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    if (texts.length < 4 || frame.height < 60) faults.push(`${title}: hardly a chart`);
    const marks = [...chart.querySelectorAll("path, use")].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.width + box.height > 3 && /-(val|test|train|right|wrong|accepted|refused|seen|ink)\b/.test(node.getAttribute("class"));
    });
    if (!marks.length) faults.push(`${title}: nothing is drawn`);
    texts.forEach(([one, box], i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        faults.push(`${title}: ${one} is cut off`);
      if (parseFloat(getComputedStyle(chart.querySelector("text")).fontSize) * frame.width / chart.viewBox.baseVal.width < 9)
        faults.push(`${title}: letters too small to read`);
      for (const [other, its] of texts.slice(i + 1)) if (meet(box, its)) faults.push(`${title}: ${one} lies on ${other}`);
    });
  }
  const light = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return /, 0\)$/.test(colour) && node.parentElement ? behind(node.parentElement) : colour;
  };
  for (const node of document.querySelectorAll("h1, h2, h3, p, a, td, th, dt, dd, summary, figcaption, caption, ins, del, .tag, .soft, text")) {
    const style = getComputedStyle(node), ink = node.tagName === "text" ? style.fill : style.color;
    const [high, low] = [light(ink), light(behind(node.closest("svg") ? node.closest("figure") : node))].sort((a, b) => b - a);
    if ((high + 0.05) / (low + 0.05) < 4.5) faults.push(`too pale: ${name(node)}`);
  }
  const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
  for (const node of document.querySelectorAll("details")) node.open = true;
  wide();
  return {faults: [...new Set(faults)], charts: charts.length, scripts: document.scripts.length, load,
          scheme: getComputedStyle(document.body).backgroundColor};
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with names and texts that are hostile, long, and Chinese."""
    folder = tmp_path_factory.mktemp("run")
    tickets = runs.tickets(folder / "tickets.jsonl", CHINESE, HOSTILE)
    assert fit(folder, tickets, gate__alpha=0.5, reflection__num_proposals=8).code == 0
    return folder / "run" / REPORT


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_it_looks_well(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width, dark)
    found: dict[str, Any] = browser.evaluate(FAULTS)
    assert found["faults"] == []
    assert found["charts"] == 8
    assert found["scripts"] == 0
    assert found["load"] < LOADED_MS
    assert found["scheme"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    asked = [event["params"]["request"]["url"] for event in browser.told("Network.requestWillBeSent")]
    assert asked == [report.absolute().as_uri()]
    told = browser.told("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
    assert told == [], json.dumps(told)
