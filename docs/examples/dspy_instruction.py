"""A DSPy program whose instruction is learnt by ``stageb.fit``: an optimizer like DSPy's own, whose
text is written rules.

    optimizer = LearntInstruction("verdict", fails=("no",), run_name="seals")
    compiled = optimizer.compile(dspy.Predict("seal, length -> verdict"), trainset=examples)

Code learns the rules from the examples; the program's model reads them. The run's folder keeps
their proof, and its report.
"""

from typing import Any

from dspy.teleprompt import Teleprompter

import stageb

MISSION = "examples"


class LearntInstruction(Teleprompter):  # type: ignore[misc]  # DSPy may not be installed where this is checked
    """``run`` is what ``stageb.fit`` returned."""

    def __init__(
        self, output: str, fails: tuple[str, ...] = ("fail",), run_name: str = "dspy", **keys: Any
    ) -> None:
        """``output`` is the field to learn, ``fails`` are its values that rules speak of as
        failures, ``keys`` further keys of ``stageb.fit``."""
        super().__init__()
        self._output, self._fails, self._run_name, self._keys = output, fails, run_name, keys
        self.run: stageb.Run | None = None

    def compile(self, student: Any, *, trainset: list[Any], **_: Any) -> Any:
        """The program with the learnt instruction."""
        rows = [{**example.inputs(), "label": example[self._output]} for example in trainset]
        passes = sorted({str(row["label"]) for row in rows} - set(self._fails))
        columns = {
            "mission_name": MISSION,
            "group_id": None,
            "passes": passes,
            "fails": list(self._fails),
        }
        given = {
            "config": ["tickets", "frugal"],
            "model": {"engine": "scripted"},
            "output": {"run_name": self._run_name},
        }
        self.run = stageb.fit(rows, **{**given, "columns": columns, **self._keys})
        rules = [rule.text for rule in self.run.guidance[MISSION].rules]
        means = (
            f"Fail means {self._output} {' or '.join(self._fails)}, pass means "
            f"{' or '.join(passes)}."
        )
        program = student.deepcopy()
        for predictor in program.predictors():
            instruction = "\n".join([predictor.signature.instructions, means, *rules])
            predictor.signature = predictor.signature.with_instructions(instruction)
        return program
