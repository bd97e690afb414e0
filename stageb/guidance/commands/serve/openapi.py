"""The answers of a service, as an OpenAPI document and as a page for people, which asks no other
server for anything."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from stageb import __version__
from stageb.guidance.commands.serve.served import ServedGuidance
from stageb.guidance.commands.use.config import ServeConfig
from stageb.guidance.words.automation import PERSON, STAGEB

TICKET = (
    "One case to judge: a row of a table by the names of its columns, such as the run learnt "
    "from, or an object with per_image, as a line of JSON Lines. mission may be left out where "
    "there is guidance for one alone."
)
ROW = {
    "mission": ("string", "whose guidance judged it"),
    "group_id": (["string", "null"], "what the ticket says it is of"),
    "verdict": (["string", "null"], "null where no rule can tell"),
    "by": ("string", "rules"),
    "reason": ("string", "the rule that gives the verdict, and why"),
    "agreement": ("number", "1, or 0 without a verdict"),
    "probability": (["number", "null"], "how probable a model holds the verdict; null by rules"),
    "rule": ("string", "key of the rule that decides; G0 where none speaks of the ticket"),
    "margin": (
        "integer",
        "of a rule with points, how many lie between this verdict and the next best one",
    ),
    "review": ("boolean", "whether a person should look"),
    "why": ("string", "and why"),
    "guidance_step": ("integer", "step of the guidance that judged it"),
    "provisional": ("boolean", "whether the proof of the rule is missing"),
    "decides": (
        ["string", "null"],
        f"{STAGEB} or {PERSON}, by what stageb automate promised; null where nothing is promised",
    ),
}
FAULTS = {
    400: "the body is no JSON",
    408: "it did not come in time",
    413: "too many tickets, or bytes",
    415: "its content-type is not application/json",
    422: "a ticket that cannot be judged; none of the others was",
    503: "not judged in time, or too many connections",
}

HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>stageb serve</title><style>
body { font: 16px sans-serif; max-width: 50em; margin: 2em auto }
td { padding: .1em 1em .1em 0; vertical-align: top }
pre { background: #eee; padding: 1em; white-space: pre-wrap }
</style>"""


def write_document(served: ServedGuidance, config: ServeConfig) -> dict[str, Any]:
    """The document; its example has the fields that rules name."""
    mission, fields = next(iter(served.list_fields().items()))
    example = {config.columns.mission: mission} | dict.fromkeys(fields, "...")
    value = {"type": ["string", "number", "boolean", "null"]}
    images = {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "summaries, by image_1, image_2, ...",
    }
    ticket = {
        "type": "object",
        "description": TICKET,
        "properties": {"per_image": images},
        "additionalProperties": value,
        "example": example,
    }
    row = {name: {"type": kind, "description": about} for name, (kind, about) in ROW.items()}
    fault = {name: {"type": "string"} for name in ("at", "what", "remedy")}
    faults = {"faults": {"type": "array", "items": {"type": "object", "properties": fault}}}
    schemas = {
        "Ticket": ticket,
        "Verdict": {"type": "object", "properties": row, "required": [*row]},
        "Faults": {"type": "object", "properties": faults, "required": ["faults"]},
    }
    answers = {"200": _say("a row for each ticket, in their order", _one_or_many("Verdict"))}
    answers |= {str(status): _say(about, _refer("Faults")) for status, about in FAULTS.items()}
    told = (
        f"At most {config.max_tickets} tickets and {config.max_kib} KiB a request, judged "
        f"within {config.max_seconds:g} s."
    )
    judge = {
        "summary": "Judge one ticket, or a list of them, by rules",
        "description": told,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _one_or_many("Ticket")}},
        },
        "responses": answers,
    }
    others = {
        "/health": ("Whether it answers, and by which guidance", "application/json"),
        "/metrics": ("Counters and times, for Prometheus", "text/plain"),
        "/openapi.json": ("This document", "application/json"),
        "/": ("This document as a page", "text/html"),
    }
    paths = {"/judge": {"post": judge}}
    paths |= {
        path: {"get": {"summary": about, "responses": {"200": _say(about, None, kind)}}}
        for path, (about, kind) in others.items()
    }
    info = {
        "title": "stageb serve",
        "version": __version__,
        "description": "Verdicts on tickets, by rules as code.",
    }
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def write_page(document: dict[str, Any]) -> str:
    """The document as HTML."""
    schemas, info = document["components"]["schemas"], document["info"]
    example = json.dumps(schemas["Ticket"]["example"], ensure_ascii=False)
    said = [
        f"<h1>{escape(info['title'])} "
        f"{escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
    ]
    for path, of in document["paths"].items():
        for method, entry in of.items():
            said.append(
                f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(entry['summary'])}. "
                f"{entry.get('description', '')}</p>"
            )
            if method == "post":
                answers = "".join(
                    f"<tr><td>{status}<td>{escape(each['description'])}"
                    for status, each in entry["responses"].items()
                )
                fields = "".join(
                    f"<tr><td>{name}<td>{escape(each['description'])}"
                    for name, each in schemas["Verdict"]["properties"].items()
                )
                said.append(
                    f"<p>{escape(schemas['Ticket']['description'])}</p><pre>{escape(example)}</pre>"
                )
                said.append(f"<table>{fields}</table><table>{answers}</table>")
    return f"{HEAD}{''.join(said)}"


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_or_many(name: str) -> dict[str, Any]:
    return {"oneOf": [_refer(name), {"type": "array", "items": _refer(name)}]}


def _say(
    about: str, schema: dict[str, Any] | None, kind: str = "application/json"
) -> dict[str, Any]:
    return {"description": about, "content": {kind: {"schema": schema} if schema else {}}}
