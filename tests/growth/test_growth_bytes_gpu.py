"""On a GPU, as on the CPU: equal runs leave equal bytes, undisturbed or killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conformance import content, differing
from programs import forks
from programs.growths import arguments

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
KEYS = {
    "growth__updates": 4,
    "host__width": 32,
    "evaluation__every": 2,
    "fabric__accelerator": "cuda",
}
WAIT_S = 240.0


def on_gpu(root: Path, name: str, kill_before: int | None = None) -> forks.Ended:
    return forks.Forks(arguments(root, 1, **KEYS), 1, root / name, kill_before).wait(WAIT_S)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, forks.Ended]:
    """A run that nothing disturbed, with its folder."""
    root = tmp_path_factory.mktemp("whole")
    ended = on_gpu(root, "job")
    assert ended.codes == (0,), ended.err
    assert "rank 0 on cuda:0" in ended.err
    return root / "run", ended


def test_two_runs_leave_equal_bytes(whole: tuple[Path, forks.Ended], tmp_path: Path) -> None:
    again = on_gpu(tmp_path, "job")
    assert again.codes == (0,), again.err
    assert differing(content(tmp_path / "run"), content(whole[0])) == []


def test_a_killed_run_goes_on_to_the_very_bytes(
    whole: tuple[Path, forks.Ended], tmp_path: Path
) -> None:
    folder, undisturbed = whole
    killed = on_gpu(tmp_path, "killed", len(undisturbed.operations[0]) // 2)
    assert killed.codes == (137,)
    resumed = on_gpu(tmp_path, "resumed")
    assert resumed.codes == (0,), resumed.err
    assert "resuming after" in resumed.err
    assert differing(content(tmp_path / "run"), content(folder)) == []
