"""Checkpoints that are not whole, and answers that hold what none should: a model that learnt
little may say anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from damage import DAMAGES, damage
from two_channel import made

from stageb.errors import EngineError
from stageb.two_channel.boxes import text
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.detect import detect_in_view
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.types import DetectorRollout


def test_an_images_token_in_an_answer_takes_nothing_but_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, (sample, *_) = made.detector(tmp_path), made.samples(made.folder_of(tmp_path))
    spelling = found.spelling
    image, true = int(found.model.config.image_token_id), text.list_true_objects(sample)
    whole = text.write_answer(true, spelling).ids
    end = text.parse(whole, spelling).ends[0]
    answers = [whole, (*whole[:end], image, *whole[end:]), (image, *whole), (image,), ()]
    writer = Writer(found)
    monkeypatch.setattr(
        writer, "write", lambda *_: [DetectorRollout(ids, True, 0) for ids in answers]
    )
    told = detect_in_view(writer, [sample] * len(answers), TwoChannelConfig())
    assert [each.objects for each in told] == [true, true[:1], (), (), ()]
    assert told[1].scores == pytest.approx(told[0].scores[:1], rel=1e-4)


@pytest.mark.parametrize(("how", "says"), DAMAGES)
def test_a_detector_that_is_not_whole_is_not_loaded(tmp_path: Path, how: str, says: str) -> None:
    folder = Path(shutil.copytree(made.folder_of(tmp_path) / "model", tmp_path / how))
    (weights,) = folder.glob("*.safetensors")
    damage(weights, how, "model.language_model.norm.weight")
    with pytest.raises(EngineError, match=rf"model\.model_name_or_path.*{says}"):
        made.load(folder)


def test_a_detector_whose_config_names_code_is_not_loaded(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made.folder_of(tmp_path) / "model", tmp_path / "named"))
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["attn_implementation"] = "owner/kernel"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        EngineError,
        match=r"config\.json has attn_implementation 'owner/kernel', code that would be fetched",
    ):
        made.load(folder)
