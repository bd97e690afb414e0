"""From images to guidance: summaries over all ranks, killed and gone on with; runs that are shown
images."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conformance import check_equal_bytes, content
from engines import tiny_models
from PIL import Image
from programs import forks, photos, small

import stageb
from stageb.__main__ import main

SEEING: dict[str, Any] = {
    "model.model_name_or_path": "programs.models:seeing",
    "sampler.use_images": "instead",
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_image_gets_a_summary_and_a_run_learns_from_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets, output = photos.write(tmp_path, 160), tmp_path / "summarized.jsonl"
    rows = lines(tickets)
    rows[1]["per_image"] = {"image_1": "seen by a person"}
    tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(photos.summarize(tickets, output)) == 0
    assert "every image of 160 tickets has a summary" in capsys.readouterr().out
    made = lines(output)
    assert [{**row, "per_image": 0} for row in made] == [{**row, "per_image": 0} for row in rows]
    state = Path(rows[0]["images"][0]).stem
    assert made[0]["per_image"] == {"image_1": f"state: {state} and nothing else"}
    assert made[1]["per_image"] == {"image_1": "seen by a person"}

    said = (
        output.read_text()
        .replace(" and nothing else", "")
        .replace("seen by a person", "state: new")
    )
    output.write_text(said)
    keys = {**SEEING, "runner.epochs": 1}
    assert main(small.arguments(output, tmp_path / "out", 1, keys)) == 0
    assert "Fail if state is torn." in capsys.readouterr().out
    run = tmp_path / "out" / "run"
    model = {"engine": "scripted", "model_name_or_path": SEEING["model.model_name_or_path"]}
    judged = stageb.predict(
        guidance=str(run), tickets=str(output), output=str(tmp_path / "p.jsonl"), model=model
    )
    agree = [row["verdict"] == line["label"] for row, line in zip(judged, rows, strict=True)]
    # by the images: the run's sampler shows them in the place of the summaries
    assert sum(agree) > 0.9 * len(rows)
    # the folder is looked at before the images are
    assert main(small.arguments(output, tmp_path / "out", 1, keys)) == 0
    Image.new("RGB", (41, 30), "red").save(tmp_path / rows[0]["images"][0])
    assert main(small.arguments(output, tmp_path / "out", 1, keys)) == 2
    assert "holds a run with another config:\n  tickets: " in capsys.readouterr().err


def test_rollouts_with_images_are_the_same_on_one_rank_and_two(tmp_path: Path) -> None:
    tickets = photos.write(tmp_path, 30)
    rows = [{**row, "per_image": {"image_1": "not seen"}} for row in lines(tickets)]
    tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    keys = {**SEEING, "runner.epochs": 0}
    for size in (1, 2):
        ended = forks.run(
            small.arguments(tickets, tmp_path / f"out{size}", size, keys),
            size,
            tmp_path / f"ranks{size}",
        )
        assert ended.codes == (0,) * size, ended.err
    found = content(tmp_path / "out1" / "run")
    assert found == content(tmp_path / "out2" / "run")
    assert any(b"no rule speaks of it" in text for text in found.values())


def test_what_cannot_be_shown_ends_a_run_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets = small.write(tmp_path / "plain.jsonl", "valves", groups=40)

    def told(keys: dict[str, Any], file: Path = tickets) -> str:
        assert main(small.arguments(file, tmp_path / "out", 1, keys)) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    assert "sampler.use_images: True: no ticket names images; give lines" in told(
        {"sampler.use_images": True}
    )
    assert "distill.size: 3: 0 with images" in told({"sampler.use_images": True, "distill.size": 3})
    rows = lines(photos.write(tmp_path / "seen", 40))
    seen = tmp_path / "seen" / "tickets.jsonl"
    seen.write_text(
        "".join(f"{json.dumps({**row, 'per_image': {'image_1': 'x'}})}\n" for row in rows)
    )
    with_images = {"sampler.use_images": True}
    blind = told(
        {**with_images, "model.engine": "transformers", "model.model_name_or_path": "stageb-tiny"},
        seen,
    )
    assert "model.model_name_or_path: 'stageb-tiny': a checkpoint of type" in blind
    assert "cannot be shown images here; name one of the Qwen2-VL" in blind
    broken = tmp_path / "seen" / rows[0]["images"][0]
    whole = tiny_models.draw(broken, 3)
    broken.write_bytes(Path(whole).read_bytes()[:150])
    said = told(with_images, seen)
    assert f"1 unusable image:\n  {broken}: broken: " in said
    assert "of mission valves); save it anew from its source" in said


def test_summaries_are_the_same_however_often_killed_and_on_however_many_ranks(
    tmp_path: Path,
) -> None:
    tickets = photos.write(tmp_path, 13)

    def line(name: str, world_size: int) -> list[str]:
        output = tmp_path / f"{name}.jsonl"
        return photos.summarize(
            tickets, output, "--round_size=3", "--micro_batch_size=2", world_size=world_size
        )

    kills = [(0.35, 1, 2), (0.85, 2, 1)]
    check_equal_bytes(
        tmp_path, line, lambda name: (tmp_path / f"{name}.jsonl").read_bytes(), (1,), kills
    )


def test_a_checkpoint_that_can_see_writes_equal_bytes_on_one_rank_and_two(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tickets = photos.write(tmp_path, 9)
    rows = lines(tickets)
    for n, row in enumerate(rows):
        row["images"] = [f"drawn/{n}.png", f"drawn/{n}-{n}.png"]
        for name, shape in zip(row["images"], ((64, 64 + 8 * n), (70, 40)), strict=True):
            tiny_models.draw(tmp_path / name, n, shape)
    tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = tiny_models.save_with_eyes(tmp_path / "model")
    options = [
        f"--model.model_name_or_path={model}",
        "--model.engine=transformers",
        "--temperature=1.0",
    ]
    options += [
        "--max_new_tokens=6",
        "--micro_batch_size=4",
        "--prompt=Look at this {mission}.",
        "--model.torch_dtype=float32",
    ]
    found = []
    for size in (1, 2):
        output = tmp_path / f"{size}.jsonl"
        ended = forks.run(
            photos.summarize(tickets, output, *options, world_size=size),
            size,
            tmp_path / f"ranks{size}",
        )
        assert ended.codes == (0,) * size, ended.err
        found.append(output.read_bytes())
    assert found[0] == found[1]
    summaries = [
        summary for row in lines(tmp_path / "1.jsonl") for summary in row["per_image"].values()
    ]
    assert len(set(summaries)) > 9


def test_a_table_is_refused_as_that(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("mission,group_id,label,images\nm,g,pass,a.png\n")
    with pytest.raises(
        stageb.ConfigError, match=r"tickets: .*t\.csv.*a table names no images: .* JSON Lines"
    ):
        stageb.summarize(tickets=str(tmp_path / "t.csv"), output=str(tmp_path / "o.jsonl"))


def test_lines_that_cannot_be_summarized_are_told_all_at_once(tmp_path: Path) -> None:
    tickets = photos.write(tmp_path, 3)
    good = tickets.read_text()
    there = json.dumps(lines(tickets)[0]["images"])
    bad = [
        '{"mission": "m"}',
        "[]",
        f'{{"images": {there}, "per_image": {{"2": "x"}}}}',
        '{"images": ["gone.png"]}',
    ]
    tickets.write_text(good + "".join(f"{line}\n" for line in bad))
    with pytest.raises(stageb.BadInputError) as caught:
        list(
            stageb.summarize(
                tickets=str(tickets), output=str(tmp_path / "o.jsonl"), model={"engine": "scripted"}
            )
        )
    told = [str(line) for line in caught.value.bad]
    assert [line.split(": ")[0] for line in told] == [
        f"{tickets}:{number}" for number in (4, 5, 6, 7)
    ]
    assert "no images; name its image files" in told[0]
    assert "image_2 has a summary and no image" in told[2]
    assert not (tmp_path / "o.jsonl").exists() or not (tmp_path / "o.jsonl").read_text()
    first, *others = good.splitlines(keepends=True)
    blank = {**json.loads(first), "per_image": {"image_1": " \n"}}  # which says nothing
    tickets.write_text("".join([f"{json.dumps(blank)}\n", *others]))
    keys: dict[str, Any] = {"engine": "scripted", "model_name_or_path": "programs.models:seeing"}
    made = stageb.summarize(tickets=str(tickets), output=str(tmp_path / "o.jsonl"), model=keys)
    assert [row["per_image"]["image_1"].split()[0] for row in made] == ["state:"] * 3
    shutil.rmtree(tmp_path / "photos")  # what is done needs no image again
    assert (
        len(
            list(
                stageb.summarize(tickets=str(tickets), output=str(tmp_path / "o.jsonl"), model=keys)
            )
        )
        == 3
    )


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"output": ""}, "output"),
        ({"output": "summarized/"}, "output"),
        ({"output": "t.jsonl"}, "output"),
        ({"prompt": " \n"}, "prompt"),
    ],
)
def test_what_names_no_file_and_a_prompt_that_asks_nothing_are_refused(
    keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(stageb.ConfigError) as refused:
        stageb.summarize(**{"tickets": "t.jsonl", "output": "o.jsonl", **keys})
    assert refused.value.key == named


@pytest.mark.parametrize("asks", ["Look at this {mission}.", "Look."])
def test_a_prompt_that_names_the_mission_needs_tickets_that_do(asks: str, tmp_path: Path) -> None:
    tickets = photos.write(tmp_path, 1)
    row = {"images": lines(tickets)[0]["images"]}
    tickets.write_text(f"{json.dumps(row)}\n")
    keys: dict[str, Any] = {"engine": "scripted", "model_name_or_path": "programs.models:seeing"}
    made = partial(
        stageb.summarize,
        tickets=str(tickets),
        output=str(tmp_path / "o.jsonl"),
        prompt=asks,
        model=keys,
    )
    if "{mission}" in asks:
        with pytest.raises(stageb.BadInputError, match=r"no mission; .* take \{mission\} out"):
            made()
    else:
        assert len(list(made())) == 1
