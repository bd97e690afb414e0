"""Edits that are a counted line as it stands, beside those of the model: ``Fail if LINE.``; of a list, a rule for each line.

A model picks among what was counted, and picks some lines too seldom. Where verdicts cost little, the most telling lines are
tried as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from stageb.guidance.config import ReflectionConfig
from stageb.guidance.prompts import Case, ReflectionInput, Words, case_name
from stageb.guidance.reflection.evidence import Evidence
from stageb.guidance.reflection.proposals import parse_proposal
from stageb.guidance.rules.write import begin_rule
from stageb.guidance.types import Guidance, Proposal, Verdict


def propose_lines(
    errors: Sequence[Case], evidence: Evidence, label: Verdict, guidance: Guidance, config: ReflectionConfig, words: Words
) -> list[Proposal]:
    """The first ``config.counted`` lines of what was counted over ``errors``, tickets with ``label`` that were judged
    otherwise, as proposals numbered from 0. Each names wrong tickets that its line holds for."""
    opening, end = begin_rule(label, words)
    alone = replace(config, max_operations=1)
    proposals = []
    for place, clue in enumerate(evidence.clues[: config.counted]):
        cases = tuple(errors[position] for position in clue.met)
        operation = {
            "op": "add",
            "text": f"{opening}[{place + 1}]{end}",
            "rationale": f"[{place + 1}]",
            "evidence": [case_name(position) for position in range(len(cases))],
        }
        text = json.dumps({"operations": [operation]}, ensure_ascii=False)
        proposals.append(parse_proposal(text, ReflectionInput(cases, evidence), guidance, alone, words, place))
    return proposals
