"""A row's columns are read from their own cells, whatever else its cells say."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.rules.reading import join_cells, read_summaries

NAMES = ("Seal", "Lid", "Remarks")
TEXTS = st.text(st.sampled_from("ab ;,|=:：；，。\n"), min_size=1, max_size=12).map(str.strip).filter(bool)
SAYING = st.builds(
    lambda before, name, says, value: f"{before}{name}{says}{value}",
    st.sampled_from(["", "was fixed; ", "dusty, ", "ok. ", "see | ", "好，", "x\n", "; ; "]),
    st.sampled_from([*NAMES, "seal", "the Seal", " LID "]),
    st.sampled_from([": ", "=", " is ", "："]),
    st.sampled_from(["new", "worn; Lid: off", ""]),
)


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, st.one_of(st.just(""), TEXTS, SAYING))))
def test_a_column_has_the_value_of_its_own_cell(cells: dict[str, str]) -> None:
    pairs = read_summaries((join_cells(cells),)).pairs
    for name, text in cells.items():
        first = re.split(r"[;；，。|,]|\.\s", " ".join(text.split()))[0]
        assert pairs.get(name) == read_summaries((f"{name}: {first}",)).pairs.get(name)
    assert not {"seal", "the Seal", "LID"} & pairs.keys()


@pytest.mark.parametrize("remark", ["was fixed; Seal: new", "ok, the seal is new", "Seal = new"])
def test_a_remark_is_still_there_to_be_read(remark: str) -> None:
    joined = join_cells({"Seal": "worn", "Remarks": remark})
    assert joined.replace('"', "") == f"Seal: worn; Remarks: {remark}"
    assert join_cells({"Seal": "worn", "Remarks": "fine, Lid: off"}) == "Seal: worn; Remarks: fine, Lid: off"  # no column
