"""An MLflow judge aligned with people by this package: what they said of traces becomes written
rules in its instructions.

    aligned = judge.align(traces, optimizer=LearntRules())

``traces`` carry people's feedback under the judge's name. Code learns the rules, without a model;
the judge's model reads them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mlflow.genai.judges import AlignmentOptimizer, Judge, make_judge

from stageb import GuidanceClassifier


class LearntRules(AlignmentOptimizer):  # type: ignore[misc]  # MLflow may not be installed where this is checked
    """``rules`` are those that the last judge got."""

    def __init__(self, **learner: Any) -> None:
        """``learner`` are settings of ``GuidanceClassifier``, such as ``fails="no"``, the class
        that rules speak of."""
        self._learner, self.rules = learner, list[str]()

    def align(self, judge: Judge, traces: list[Any]) -> Judge:
        """The judge with what people's feedback on ``traces`` taught."""
        told = [
            (read_trace(trace), value)
            for trace in traces
            for value in list_feedback(trace, judge.name)
        ]
        if len({value for _, value in told}) < 2:
            raise ValueError(
                f"traces: people's feedback under {judge.name!r} has fewer than two values; "
                f"rules tell them apart"
            )
        learnt = GuidanceClassifier(**self._learner).fit(
            [row for row, _ in told], [value for _, value in told]
        )
        self.rules = [text for key, text in learnt.rules_.items() if key != "G0"]
        means = ""
        if len(learnt.classes_) == 2:
            passes = next(each for each in learnt.classes_ if each != learnt.fails_)
            means = (
                f" Fail means {learnt.fails_}, pass means {passes}, and what no rule speaks "
                f"of passes."
            )
        rules = "\n".join(f"- {text}" for text in self.rules)
        instructions = f"{judge.instructions}\n\nPeople judged by these rules.{means}\n{rules}"
        return make_judge(
            name=judge.name,
            instructions=instructions,
            model=judge.model,
            feedback_value_type=judge.feedback_value_type,
        )


def list_feedback(trace: Any, name: str) -> Iterator[str]:
    """What people said of a trace under a judge's name."""
    for each in trace.info.assessments or ():
        if each.name == name and each.feedback and each.source.source_type == "HUMAN":
            yield str(each.feedback.value)


def read_trace(trace: Any) -> dict[str, str]:
    """A trace's request and response as fields."""
    fields: dict[str, str] = {}
    for side, said in (("inputs", trace.data.request), ("outputs", trace.data.response)):
        try:
            value = json.loads(said)
        except (TypeError, ValueError):
            value = said
        named = value if isinstance(value, Mapping) else {side: value}
        fields |= {
            str(name): each if isinstance(each, str) else json.dumps(each)
            for name, each in named.items()
        }
    return fields
