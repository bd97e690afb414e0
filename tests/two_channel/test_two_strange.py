"""Answers that hold what no answer should: a model that has learnt little, or a broken one, may say anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_channel import made

from stageb.two_channel import text
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.evaluate import answer_view
from stageb.two_channel.rollout import Writer
from stageb.two_channel.types import Rollout


def test_an_images_token_in_an_answer_takes_nothing_but_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, (sample, *_) = made.detector(tmp_path), made.samples(made.folder_of(tmp_path))
    spelling = text.find_spelling(found.tokenizer)
    image, true = int(found.model.config.image_token_id), text.truth(sample)
    whole = text.written(true, spelling).ids
    end = text.parse(whole, spelling).ends[0]
    answers = [whole, (*whole[:end], image, *whole[end:]), (image, *whole), (image,), ()]
    writer = Writer(found, spelling)
    monkeypatch.setattr(writer, "write", lambda *_: [Rollout(ids, True, 0) for ids in answers])
    told = answer_view(writer, [sample] * len(answers), spelling, TwoChannelConfig(), [])
    assert [each.objects for each in told] == [true, true[:1], (), (), ()]
    assert told[1].scores == pytest.approx(told[0].scores[:1], rel=1e-4)
