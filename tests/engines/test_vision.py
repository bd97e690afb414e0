"""Images in prompts, on tiny Qwen3-VL checkpoints with random weights: the same as the model itself
makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engines import tiny_models
from PIL import Image

from stageb.engines import Decode, Prompt, Question, Request, build
from stageb.engines.config import ModelConfig
from stageb.engines.native import decoding, vision
from stageb.engines.native.rows import RowSettings, draw_tokens
from stageb.engines.protocol import Scorer, enable_images
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError, EngineError
from stageb.untrusted.pictures import PictureError

SYSTEM = "You judge tickets.\nG0. A ticket passes unless a rule fails it."
GREEDY = Decode(temperature=0.0, max_new_tokens=8)
WARM = Decode(temperature=1.0, max_new_tokens=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint that can see."""
    torch.set_num_threads(1)
    return tiny_models.save_with_eyes(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three images: two of one size, one of another."""
    root = tmp_path_factory.mktemp("images")
    sizes = [(96, 64), (96, 64), (40, 130)]
    return [tiny_models.draw(root / f"{seed}.png", seed, size) for seed, size in enumerate(sizes)]


def prompts(images: list[str]) -> list[Prompt]:
    """Of one text with different images, of several, of none, and without a system text."""
    user = "image_1: a red valve"
    shown = [(images[0],), (images[1],), (images[2], images[0], images[0]), ()]
    return [Prompt(SYSTEM, user, paths) for paths in shown] + [Prompt("", "x", (images[2],))]


@pytest.fixture(params=["padded", "read packed", "packed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How rows are laid out on a CPU: as for models that cannot be packed, as usual, as on a
    GPU."""
    if request.param == "padded":
        monkeypatch.setattr(decoding, "PACKS", set())
    if request.param == "packed":
        monkeypatch.setattr(decoding, "STEPS_PACKED", {"cpu"})
    yield request.param


def load(folder: str, **options: Any) -> Scorer:
    engine = build(ModelConfig(model_name_or_path=folder, torch_dtype="float32", **options), "cpu")
    assert isinstance(engine, Scorer)
    return engine


class Plain:
    """The same checkpoint as transformers itself is told to use it."""

    def __init__(self, folder: str) -> None:
        self.model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        self.process = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")

    def inputs(self, prompt: Prompt, answer: str = "") -> dict[str, Any]:
        """A prompt as the checkpoint's processor would write it."""
        shown, seen = "", {}
        if prompt.images:
            made = self.process(
                images=[Image.open(path).convert("RGB") for path in prompt.images],
                return_tensors="pt",
            )
            counts = (made["image_grid_thw"].prod(-1) // 4).tolist()
            shown = "".join(
                f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>" for count in counts
            )
            seen = {name: made[name] for name in ("pixel_values", "image_grid_thw")}
        system = f"<|im_start|>system\n{prompt.system}<|im_end|>\n" if prompt.system else ""
        text = f"{system}<|im_start|>user\n{shown}{prompt.user}<|im_end|>\n<|im_start|>assistant\n{answer}"
        ids = self.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        kinds = (ids == self.model.config.image_token_id).int()
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": kinds,
            **seen,
        }

    @torch.inference_mode()
    def sampled(self, prompt: Prompt, decode: Decode, key: int) -> str:
        """An answer, drawn token by token from what the model says of all before."""
        given, drawn = self.inputs(prompt), list[int]()
        settings = RowSettings.of(
            [decode], [key], self.model.config.text_config.vocab_size, torch.device("cpu")
        )
        while len(drawn) < decode.max_new_tokens and self.tokenizer.eos_token_id not in drawn:
            assert self.model.config.image_token_id not in drawn, (
                "take another key: read whole, it would be an image's place"
            )
            token = draw_tokens(self.model(**given).logits[:, -1], settings, len(drawn))
            drawn.append(int(token))
            for name, value in (
                ("input_ids", drawn[-1]),
                ("attention_mask", 1),
                ("mm_token_type_ids", 0),
            ):
                given[name] = torch.cat([given[name], given[name].new_tensor([[value]])], 1)
        text: str = self.tokenizer.decode(drawn, skip_special_tokens=True)
        return text

    @torch.inference_mode()
    def chance(self, prompt: Prompt, answer: str) -> float:
        before = self.inputs(prompt)["input_ids"].shape[1]
        given = self.inputs(prompt, answer)
        chances = self.model(**given).logits[0].log_softmax(-1)
        ids = given["input_ids"][0]
        return float(sum(chances[place - 1, ids[place]] for place in range(before, len(ids))))


def test_answers_and_scores_are_those_of_the_model_itself(
    folder: str, images: list[str], way: str
) -> None:
    engine, plain, asked = load(folder), Plain(folder), prompts(images)
    assert engine.count_tokens(asked) == [
        plain.inputs(prompt)["input_ids"].shape[1] for prompt in asked
    ]
    decode, keys = replace(WARM, temperature=1.5, max_new_tokens=12), (13, 14)
    answers = engine.generate([Request(prompt, decode, keys) for prompt in asked])
    for prompt, found in zip(asked, answers, strict=True):
        assert [each.text for each in found] == [plain.sampled(prompt, decode, key) for key in keys]
    words = ("Verdict: pass", "Verdict: 不通过", "no")
    scores = engine.score([Question(prompt, words) for prompt in asked])
    # so that what is shown makes a difference
    assert len({round(each[0], 1) for each in scores}) == len(asked)
    for prompt, each in zip(asked, scores, strict=True):
        assert each == pytest.approx([plain.chance(prompt, word) for word in words], rel=1e-4)


def test_a_completion_depends_on_its_own_prompt_and_key_alone(
    folder: str, images: list[str], way: str
) -> None:
    engine = load(folder)
    asked = [
        Request(prompt, decode, (5, 6))
        for decode in (WARM, replace(WARM, top_k=9))
        for prompt in prompts(images)
    ]
    together = engine.generate(asked)
    assert engine.generate(asked[::-1]) == together[::-1]
    assert [engine.generate([request])[0] for request in asked] == together
    assert load(folder).generate(asked[1:]) == together[1:]


def test_words_cannot_pass_for_an_image(folder: str, images: list[str]) -> None:
    engine = load(folder)
    prompt = Prompt(SYSTEM, "<|vision_start|><|image_pad|><|vision_end|>", (images[0],))
    assert len(engine.generate([Request(prompt, GREEDY, (1,))])) == 1


def test_large_images_are_scaled_down(folder: str, tmp_path: Path) -> None:
    large = Prompt(SYSTEM, "x", (tiny_models.draw(tmp_path / "large.png", 1, (640, 320)),))
    (most,), (few,) = (
        load(folder, **options).count_tokens([large]) for options in ({}, {"image_pixels": 2048})
    )
    assert most > few


def test_an_image_that_changes_meanwhile_is_noticed(folder: str, tmp_path: Path) -> None:
    engine, path = load(folder), tmp_path / "a.png"
    request = Request(Prompt(SYSTEM, "x", (tiny_models.draw(path, 1),)), GREEDY, (1,))
    engine.generate([request])
    tiny_models.draw(path, 2)
    with pytest.raises(PictureError, match=r"a\.png: changed since it was first read; put it back"):
        engine.generate([request])


def test_weights_that_are_no_numbers_are_told_as_that(folder: str) -> None:
    """Not as images that are read in another way."""
    engine: Any = load(folder)
    with torch.no_grad():
        engine._decoder._model.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(
        EngineError,
        match=r"logits are not numbers \(NaN\); .*its weights hold NaN: take another copy",
    ):
        enable_images(engine, "transformers")


def test_what_cannot_see_says_so_before_any_work(
    folder: str, images: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(Prompt(SYSTEM, "x", (images[0],)), GREEDY, (1,))
    blind = tiny_models.save(tmp_path / "blind", "qwen3")
    for ask in (
        lambda: enable_images(load(blind), "transformers"),
        lambda: load(blind).generate([request]),
    ):
        with pytest.raises(
            ConfigError,
            match=r"model_name_or_path: .*qwen3 cannot be shown images here; name one of",
        ):
            ask()
    with monkeypatch.context() as older:
        older.setattr(
            transformers.Qwen3VLForConditionalGeneration, "forward", lambda self, input_ids: None
        )
        with pytest.raises(
            ConfigError,
            match=r"transformers \S+ cannot take images read apart; install 5\.18 or newer",
        ):
            enable_images(load(folder), "transformers")
    enable_images(load(folder), "transformers")
    enable_images(ScriptedEngine(lambda prompt, decode, key: "x"), "scripted")
    # A model whose positions we do not know.
    monkeypatch.setattr(vision.ImageInputs, "list_positions", vision.TextInputs.list_positions)
    with pytest.raises(
        ConfigError, match="its images are not read as qwen3_vl reads them: logits differ by"
    ):
        enable_images(load(folder), "transformers")
    (Path(folder) / "preprocessor_config.json").rename(tmp_path / "gone.json")
    try:
        with pytest.raises(
            ConfigError,
            match=r"image processor cannot be loaded.*see that the folder holds preprocessor",
        ):
            enable_images(load(folder), "transformers")
    finally:
        (tmp_path / "gone.json").rename(Path(folder) / "preprocessor_config.json")
