"""The audit on one page: what people said of each bound, over time."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from math import log

from matplotlib.figure import Figure

from stageb.guidance.commands.audit.watch import LEVEL, RuleErrors, find_fault, is_alarm
from stageb.guidance.commands.report import page
from stageb.guidance.commands.report.charts import (
    COLOURS,
    LETTER,
    POINTS,
    WIDTH,
    draw_dotted,
    render_svg,
    use_settings,
)
from stageb.guidance.commands.report.sentences import escape_unseen
from stageb.guidance.words.automation import Bound, write_share

FLOOR = -6.0  # of the log of wealth, as it is drawn


@dataclass(frozen=True, slots=True)
class AuditedBound:
    """A bound, and what people have said of verdicts under it."""

    mission: str
    bound: Bound
    # whether an answer says that the verdict is wrong, in the order in which they were read
    errors: tuple[bool, ...]
    wealth: tuple[float, ...]  # natural log, after each
    rules: Sequence[RuleErrors]

    @property
    def is_broken(self) -> bool:
        """Whether it was shown to be, at any time."""
        return any(map(is_alarm, self.wealth))

    def describe(self) -> str:
        """All that is known of it."""
        of = f" of those judged {self.bound.verdict}" if self.bound.verdict else ""
        limit = write_share(self.bound.max_error)
        said = (
            f"{self.mission}: {sum(self.errors):,} of {len(self.errors):,} answers say that "
            f"the verdict is wrong"
        )
        if not self.is_broken:
            return f"{said}; no proof that more than {limit}{of} are wrong"
        at = next(place for place, wealth in enumerate(self.wealth, 1) if is_alarm(wealth))
        fault = find_fault(self.rules)
        why = (
            f": {fault.rule}, {fault.wrong:,} of {fault.answered:,}"
            if fault
            else "; no rule stands out"
        )
        return (
            f"{said}; ALARM since answer {at:,}: more than {limit}{of} are wrong{why}; learn "
            f"anew, or automate again"
        )


def render_page(audited: Sequence[AuditedBound], notes: Sequence[str]) -> str:
    """The HTML, which needs no network and no script."""
    style = (page.TEMPLATES / "report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    with use_settings():
        parts = [_render_bound(number, each) for number, each in enumerate(audited, 1)]
    told = "".join(f"<li>{_text(said)}</li>" for said in notes)
    drift = f"<section><h2>What drifts</h2><ul>{told}</ul></section>" if told else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
        'name="color-scheme" content="light dark">'
        f"<title>Audit</title><style>{style}</style></head><body>"
        "<header><h1>Audit of tickets decided alone</h1></header><main>"
        f"{''.join(parts)}{drift}</main></body></html>\n"
    )


def _render_bound(number: int, each: AuditedBound) -> str:
    rows = "".join(
        f'<tr><td>{_text(of.rule)}</td><td class="n">{of.answered:,}</td><td '
        f'class="n">{of.wrong:,}</td></tr>'
        for of in each.rules
    )
    heads = (
        '<th scope="col">Rule</th><th scope="col" class="n">Answers</th><th scope="col" '
        'class="n">Wrong</th>'
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    chart = f"<figure>{_draw(number, each)}</figure>" if each.errors else ""
    kind = "loud" if each.is_broken else "lead"
    return (
        f"<section><h2>{_text(each.mission)}</h2><p "
        f'class="{kind}">{_text(each.describe())}</p>{chart}{table}</section>'
    )


def _draw(number: int, each: AuditedBound) -> str:
    """Errors among answers so far, and how much speaks against the bound."""
    figure = Figure(figsize=(WIDTH / 72, 250 / 72))
    above, below = figure.subplots(2, 1, sharex=True)
    count = len(each.errors)
    places = sorted({round(n * (count - 1) / (POINTS - 1)) for n in range(POINTS)})  # of many, some
    wrong = list(accumulate(each.errors))
    above.plot(
        [place + 1 for place in places],
        [wrong[place] / (place + 1) for place in places],
        color=COLOURS["wrong"],
        linewidth=1.4,
    )
    draw_dotted(above, each.bound.max_error)
    above.set_ylabel("wrong so far", fontsize=LETTER)
    below.plot(
        [place + 1 for place in places],
        [max(FLOOR, each.wealth[place]) for place in places],
        color=COLOURS["val"],
        linewidth=1.4,
    )
    draw_dotted(below, -log(LEVEL))
    below.set_ylabel("log of wealth", fontsize=LETTER)
    below.set_xlabel("answers", fontsize=LETTER)
    for axes in (above, below):
        axes.tick_params(labelsize=LETTER, length=3)
    figure.tight_layout()
    told = f"{each.describe()}; dotted: the bound, and above the alarm"
    return render_svg(
        figure, f"b{number}", "Errors among answers, and what speaks against the bound", told
    )


def _text(text: str) -> str:
    return escape(escape_unseen(text))
