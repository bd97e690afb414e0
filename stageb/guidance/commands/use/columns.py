"""Tables judged by their columns, by rules as code alone: a row is read as a ticket for all that
rules cannot tell from it.

What is written of files is what ``judged.py`` writes of tickets that it judges one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat
from typing import Any, TypeVar

from stageb.errors import InputError
from stageb.guidance.commands.use.doubts import Survey
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.rules.fields import Columns, place_columns, read_ticket
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.row_keys import (
    MOST_KEPT,
    Memo,
    RowKeys,
    judge_once_per_key,
    make_reader,
    make_row_keys,
    reads_all_texts,
)
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.tickets.batches import ColumnarBatch, has_columns, read_batches
from stageb.guidance.tickets.stream import TicketLine
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket
from stageb.untrusted.strict_json import FaultError

V = TypeVar("V")

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
        doubted: Mapping[str, Collection[str]],
        judge: Callable[[Ticket], Row],
    ) -> None:
        """``rules`` by mission; ``doubted``: by mission, further fields of which it matters whether
        a row has one; ``judge`` gives what is written of a ticket."""
        self._judge = judge

        def begin(kind: tuple[str, tuple[str, ...]]) -> tuple[RowKeys, dict[Hashable, Row]]:
            mission, names = kind
            return make_row_keys(rules[mission], names, doubted.get(mission, ())), {}

        self._begun = Memo(begin)  # by mission and the fields of a table

    def judge(self, batch: ColumnarBatch) -> list[Row]:
        """All that is written of each row, beside what it is called."""
        judged: list[Row] = [{}] * len(batch.lines)
        for mission, places, fields in _list_missions(batch):
            key_rows, known = self._begun[mission, tuple(fields)]
            if len(known) > MOST_KEPT:
                known.clear()

            def judge(row: int, places: Sequence[int] = places) -> Row:
                return self._judge(batch.ticket(places[row]))

            for place, row in zip(
                places, judge_once_per_key(key_rows(fields), judge, known), strict=True
            ):
                judged[place] = row
        return judged


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of a table in memory, of one mission, with keys by what its rules see of them."""

    cells: Mapping[str, Sequence[str]]  # by column
    fields: Mapping[str, Sequence[str]]  # that matter, by the names that rules know; empty: lacking
    roles: Columns
    rules: CodedRules
    keys: Iterable[Hashable]  # of each row; rows with equal ones cannot be told apart

    @classmethod
    def of(
        cls,
        cells: Mapping[str, Sequence[str]],
        roles: Columns,
        rules: CodedRules,
        named: Collection[str],
    ) -> KeyedRows:
        """``cells`` of at least one column; ``named`` are all fields that rules name. Where a
        column is an image, in which fields may be, rows are alike whose cells are."""
        places, _ = place_columns(tuple(cells), roles)
        if not any(is_image for *_, is_image in places):
            takes_all = reads_all_texts(rules)
            wanted = {
                column: cells[column] for name, column, _ in places if takes_all or name in named
            }
            fields = make_reader(roles)(wanted)
            key_rows = make_row_keys(rules, tuple(fields))
            return cls(cells, fields, roles, rules, key_rows(fields) if fields else repeat(()))
        rows = [*zip(*cells.values(), strict=True)]
        read = Memo[tuple[str, ...], Reading](
            lambda row: read_ticket(dict(zip(cells, row, strict=True)), roles)
        )
        readings = [read[row] for row in rows]
        found = {
            name: [each.pairs.get(name, "0" if each.is_counted else "") for each in readings]
            for name in named
        }
        return cls(cells, found, roles, rules, rows)

    def __len__(self) -> int:
        return len(next(iter(self.cells.values())))

    def judge(self, tell: Callable[[Ruling, Reading], V]) -> list[V]:
        """What to ``tell`` of each row by the ruling on it, asked once of rows that are alike."""
        judge = self.rules.compile()

        def ask(place: int) -> V:
            row = {name: column[place] for name, column in self.cells.items()}
            reading = read_ticket(row, self.roles)
            return tell(judge(reading), reading)

        return judge_once_per_key(islice(self.keys, len(self)), ask, {})


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
