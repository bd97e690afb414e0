"""Score a checkpoint through the product's own engine: ``python -m stageb.tiny.evaluate --model stageb-tiny``.

Verdicts: fresh missions with unseen words, judged greedily, by the kind of rule that decides. Reflections: sampled as the
loop samples them; an answer is *usable* if the loop would take it, *sound* if it turns more of the cases on show than it
spoils, and *best* if no edit that the exact teacher knows scores higher.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence

from stageb.config import ModelConfig
from stageb.engines import Decode, Engine, Prompt, Request, build
from stageb.seeds import stream
from stageb.tiny.examples import reflection_row, rollout_row
from stageb.tiny.worlds import CANONICAL

COMPARISONS = (
    " above ",
    " over ",
    " greater than ",
    " more than ",
    " > ",
    " below ",
    " under ",
    " less than ",
    " < ",
    "大于",
    "小于",
)


def verdict_accuracy(engine: Engine, worlds: int, tickets: int, seed: int, chinese: float, numbers: bool) -> float:
    """Share of right verdicts on ``worlds`` fresh missions of ``tickets`` each, all with unseen words.

    ``numbers``: missions whose rules compare numbers, instead of missions whose rules do not.
    """
    rng = random.Random(stream("evaluate", seed))
    right = total = 0
    for _ in range(worlds):
        row = rollout_row(rng, 1.0, unseen=True, chinese=chinese, tickets=tickets)
        while any(word in row.system for word in COMPARISONS) != numbers:
            row = rollout_row(rng, 1.0, unseen=True, chinese=chinese, tickets=tickets)
        requests = [
            Request(Prompt(row.system, user), Decode(temperature=0, max_new_tokens=8, stop=("\n",)), (0,))
            for user, _ in row.segments
        ]
        for (completion,), (_, answer) in zip(engine.generate(requests), row.segments, strict=True):
            right += completion.text.strip() == answer.partition("\n")[0]
            total += 1
    return right / total


def reflection_quality(engine: Engine, bundles: int, samples: int, seed: int) -> dict[str, float]:
    """Shares of sampled reflections that are readable, that an exact teacher also knows, and that are its best."""
    rng = random.Random(stream("evaluate reflections", seed))
    count: Counter[str] = Counter()
    for number in range(bundles):
        row, options, _ = reflection_row(rng, 1.0, unseen=True, chinese=0.0, most_characters=4500)
        known = {
            answer_of(option.op, option.key, option.rule.text("en", CANONICAL) if option.rule else None): option.score
            for option in options
        }
        best = max(known.values())
        keys = tuple(stream("answer", seed, number, sample) for sample in range(samples))
        request = Request(
            Prompt(row.system, row.segments[0][0]), Decode(temperature=1.0, top_p=0.95, max_new_tokens=160), keys
        )
        for completion in engine.generate([request])[0]:
            count["all"] += 1
            try:
                operation = json.loads(completion.text)["operations"][0]
                score = known.get(answer_of(operation["op"], operation.get("key"), operation.get("text")))
            except (ValueError, LookupError, TypeError):
                continue
            count["readable"] += 1
            count["admissible"] += score is not None
            count["best"] += score == best
    return {name: round(count[name] / count["all"], 4) for name in ("readable", "admissible", "best")}


def answer_of(op: str, key: str | None, text: str | None) -> tuple[str, str | None, str | None]:
    """What makes two answers the same edit."""
    return op, key, text


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="stageb-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    engine = build(ModelConfig(model_name_or_path=given.model), given.device)
    scores = {
        "verdicts": verdict_accuracy(engine, given.worlds, 10, given.seed, chinese=0.0, numbers=False),
        "verdicts_chinese": verdict_accuracy(engine, given.worlds, 10, given.seed, chinese=1.0, numbers=False),
        "verdicts_with_number_rules": verdict_accuracy(engine, given.worlds, 10, given.seed, chinese=0.0, numbers=True),
        "reflections": reflection_quality(engine, given.worlds // 4, 8, given.seed),
    }
    print(json.dumps(scores, indent=2))


if __name__ == "__main__":
    main()
