"""Tables judged by their columns, by rules as code alone: a row is read as a ticket for all that
rules cannot tell from it.

What is written is what ``judged.py`` writes of tickets that it judges one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from stageb.errors import InputError
from stageb.guidance.commands.use.doubts import Survey
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import TicketLine
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.sorting import MOST_KEPT, Memo, Sort, make_sorter
from stageb.guidance.tickets.batches import ColumnarBatch, has_columns, read_batches
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket
from stageb.untrusted.strict_json import FaultError

Row = dict[str, Any]
"""All that is written of a ticket."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of all ticket files."""

    files: Sequence[str]
    columns: ColumnsConfig

    def __bool__(self) -> bool:
        """Whether each of them is a field."""
        return has_columns(self.files, self.columns)

    def survey(self, survey: Survey, check: Callable[[TicketLine], None]) -> bool:
        """Count in ``survey`` what rows lack; ``check`` raises ``FaultError`` for a ticket that
        cannot be judged. False where that, or anything else, is wrong with one."""
        try:
            for batch in read_batches(self.files, self.columns, is_named=False):
                for mission, label in dict.fromkeys(zip(batch.missions, batch.labels, strict=True)):
                    check(
                        TicketLine(
                            batch.file, 0, batch.ticket(batch.missions.index(mission)), label
                        )
                    )
                for mission, _, fields in _list_missions(batch):
                    survey.add_rows(mission, fields)
        except FaultError:
            return False
        return True

    def judge(
        self, rounds: Rounds[Any], judge: ColumnJudge, commit: Callable[[Sequence[Row]], None]
    ) -> None:
        """Judge what is left, and ``commit`` it. Raises ``InputError`` where the files are no
        longer as they were."""
        done = rounds.done
        try:
            for batch in read_batches(self.files, self.columns) if rounds.left else ():
                rows, done = batch[done : done + rounds.left], max(0, done - len(batch.lines))
                if rows.lines:
                    commit(
                        [
                            {**name, **row}
                            for name, row in zip(rows.name_all(), judge.judge(rows), strict=True)
                        ]
                    )
        except FaultError as fault:
            raise InputError(
                f"{', '.join(self.files)}: changed since they were looked at: {fault.what}"
            ) from None
        if rounds.left:
            rounds.tell_fewer()


class ColumnJudge:
    """Judges the rows of tables by their columns."""

    def __init__(
        self,
        rules: Mapping[str, CodedRules],
        doubted: Mapping[str, Mapping[str, Any]],
        judge: Callable[[Ticket], Row],
    ) -> None:
        """``rules`` by mission; ``doubted``: by mission, further fields of which it matters whether
        a row has one; ``judge`` gives what is written of a ticket."""
        self._judge = judge

        def begin(kind: tuple[str, tuple[str, ...]]) -> tuple[Sort, dict[Hashable, Row]]:
            mission, names = kind
            return make_sorter(rules[mission], names, doubted.get(mission, {})), {}

        self._begun = Memo(begin)  # by mission and the fields of a table

    def judge(self, batch: ColumnarBatch) -> list[Row]:
        """All that is written of each row, beside what it is called."""
        judged: list[Row] = [{}] * len(batch.lines)
        for mission, places, fields in _list_missions(batch):
            sort, known = self._begun[mission, tuple(fields)]
            if len(known) > MOST_KEPT:
                known.clear()
            for place, key in zip(places, sort(fields), strict=True):
                if key not in known:
                    known[key] = self._judge(batch.ticket(place))
                judged[place] = known[key]
        return judged


def _list_missions(
    batch: ColumnarBatch,
) -> list[tuple[str, Sequence[int], Mapping[str, Sequence[str]]]]:
    """Each mission of a batch, with the places of its rows, and their fields."""
    missions, every = [*dict.fromkeys(batch.missions)], range(len(batch.lines))
    if len(missions) == 1:
        return [(missions[0], every, batch.fields)]
    mine = {mission: [each == mission for each in batch.missions] for mission in missions}
    return [
        (
            mission,
            [*compress(every, of)],
            {name: [*compress(values, of)] for name, values in batch.fields.items()},
        )
        for mission, of in mine.items()
    ]
