import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from damage import DAMAGES, damage
from engines import tiny_models
from engines.contract import check_contract, check_resumer, check_scorer, questions, requests
from torch import nn
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper

from stageb import seeds
from stageb.engines import Decode, Engine, Prompt, Question, Request, Scorer, build
from stageb.engines.chat import Chat
from stageb.engines.config import ModelConfig, find_code
from stageb.engines.native import decoding
from stageb.engines.native.products import has_half_products, use_half_products
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.outline import outline
from stageb.errors import ConfigError, EngineError, StagebError

KINDS = ("qwen3", "llama", "mistral", "qwen3_vl")
WAYS = ("padded", "read packed", "packed")
QUICK = {*(("padded", kind) for kind in ("qwen3", "qwen3_vl")), ("read packed", "mistral")}
QUICK |= {("packed", kind) for kind in KINDS if kind != "llama"}
every = pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(
            way, kind, marks=() if (way, kind) in QUICK else pytest.mark.slow, id=f"{way}-{kind}"
        )
        for way in WAYS
        for kind in KINDS
    ],
    indirect=["way"],
)
# where such products are ones of bfloat16
HALVES = bool(torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx())
ANSWER = "Verdict: 不通过\nReason: 阀门 öffen 🙂"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A checkpoint of each kind."""
    torch.set_num_threads(1)
    return {kind: tiny_models.save(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def load(folder: str, device: str = "cpu", **options: Any) -> Scorer:
    engine = build(ModelConfig(model_name_or_path=folder, **options), device)
    assert isinstance(engine, Scorer)
    return engine


def loaded(folder: str, kind: str) -> tuple[Any, Any]:
    """Model and tokenizer as transformers loads them."""
    auto = (
        transformers.AutoModelForImageTextToText
        if kind == "qwen3_vl"
        else transformers.AutoModelForCausalLM
    )
    return auto.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(folder)


def prompt_ids(tokenizer: Any, prompt: Prompt) -> torch.Tensor:
    messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
    messages.append({"role": "user", "content": prompt.user})
    ids: torch.Tensor = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    return ids


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How rows are laid out on a CPU: as for models that cannot be packed, as usual, as on a
    GPU."""
    if request.param == "padded":
        monkeypatch.setattr(decoding, "PACKS", set())
    if request.param == "packed":
        monkeypatch.setattr(decoding, "STEPS_PACKED", {"cpu"})


@pytest.mark.slow
@pytest.mark.usefixtures("way")
@every
def test_contract(folders: dict[str, str], kind: str) -> None:
    engine = load(folders[kind])
    check_contract(engine)
    check_scorer(engine)
    check_resumer(engine)


@pytest.mark.slow
def test_contract_where_rows_hold_copies_of_what_is_shared(folders: dict[str, str]) -> None:
    engine = load(folders["qwen3"], attn_implementation="eager")
    check_contract(engine)
    check_scorer(engine)
    check_resumer(engine)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_contract_on_a_gpu(folders: dict[str, str], kind: str) -> None:
    engine = load(folders[kind], "cuda:0", torch_dtype="float32")
    check_contract(engine)
    check_scorer(engine)
    check_resumer(engine)


@pytest.mark.usefixtures("way")
@every
def test_greedy_answers_are_those_of_generate(folders: dict[str, str], kind: str) -> None:
    model, tokenizer = loaded(folders[kind], kind)
    prompts = [request.prompt for request in requests()]
    greedy = Decode(temperature=0.0, max_new_tokens=24)
    engine = load(folders[kind])
    answers = engine.generate([Request(prompt, greedy, (1, 2)) for prompt in prompts])
    for prompt, (first, second), count in zip(
        prompts, answers, engine.count_tokens(prompts), strict=True
    ):
        ids = prompt_ids(tokenizer, prompt)
        with torch.no_grad():
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=24,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=0,
            )
        new = whole[0, ids.shape[1] :].tolist()
        assert count == ids.shape[1]
        assert (first.text, first.tokens) == (
            tokenizer.decode(new, skip_special_tokens=True),
            len(new),
        )
        assert first.finish == ("stop" if new[-1] == tokenizer.eos_token_id else "length")
        assert first == second


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])
def test_samples_are_those_of_a_loop_without_any_cache(folders: dict[str, str], kind: str) -> None:
    model, tokenizer = loaded(folders[kind], kind)
    decode = Decode(temperature=0.8, top_k=20, max_new_tokens=10)
    processors = [TemperatureLogitsWarper(0.8), TopKLogitsWarper(20)]
    prompts = [request.prompt for request in requests()[:8]]
    answers = load(folders[kind]).generate([Request(prompt, decode, (5, 6)) for prompt in prompts])
    for prompt, samples in zip(prompts, answers, strict=True):
        for key, sample in zip((5, 6), samples, strict=True):
            start = ids = prompt_ids(tokenizer, prompt)
            while (
                ids.shape[1] < start.shape[1] + 10 and ids[0, -1] != tokenizer.eos_token_id
            ) or ids is start:
                with torch.no_grad():
                    scores = model(ids).logits[:, -1].double()
                for processor in processors:
                    scores = processor(ids, scores)
                at = seeds.uniform(key, ids.shape[1] - start.shape[1])
                token = int((scores.softmax(-1).cumsum(-1) <= at).sum())
                ids = torch.cat([ids, torch.tensor([[token]])], 1)
            new = ids[0, start.shape[1] :].tolist()
            assert (sample.text, sample.tokens) == (
                tokenizer.decode(new, skip_special_tokens=True),
                len(new),
            )


@pytest.mark.usefixtures("way")
@every
def test_scores_are_those_of_a_plain_forward(folders: dict[str, str], kind: str) -> None:
    model, tokenizer = loaded(folders[kind], kind)
    asked = questions()
    for question, scores in zip(asked, load(folders[kind]).score(asked), strict=True):
        prompt = prompt_ids(tokenizer, question.prompt)
        for answer, score in zip(question.answers, scores, strict=True):
            ids = torch.tensor([tokenizer(answer)["input_ids"]])
            with torch.no_grad():
                logits = model(torch.cat([prompt, ids], 1)).logits[0, prompt.shape[1] - 1 : -1]
            expected = logits.log_softmax(-1).gather(-1, ids[0][:, None]).sum().item()
            assert score == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_answers_that_differ_in_their_last_token_cost_one_forward(folders: dict[str, str]) -> None:
    model, tokenizer = loaded(folders["qwen3"], "qwen3")
    engine = TransformersEngine(model, Chat(tokenizer, {}))
    seen: list[int] = []
    model.register_forward_hook(
        lambda module, args, inputs, out: seen.append(out.logits.shape[1]), with_kwargs=True
    )
    asked = [
        Question(Prompt("rules", user), ("Verdict x1", "Verdict x2"))
        for user in ("one", "another one")
    ]
    common = len(tokenizer("Verdict x1")["input_ids"]) - 1
    engine.score(asked)  # which also reads what is shared, and tries the way
    seen.clear()
    engine.score(asked)
    assert seen == [len(asked) * (common + 1)]  # logits of no more tokens than are looked at


@pytest.fixture(scope="module")
def learnt() -> TransformersEngine:
    """An engine whose model has learnt one answer by heart, every character beyond ASCII in several
    tokens."""
    torch.set_num_threads(1)
    tokenizer = tiny_models.bpe(vocabulary=259)
    model = tiny_models.model("qwen3", len(tokenizer))
    words = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(words)["input_ids"]
    answer = [*tokenizer(ANSWER)["input_ids"], tokenizer.eos_token_id]
    ids = torch.tensor([prompt + answer])
    labels = torch.tensor([[-100] * len(prompt) + answer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return TransformersEngine(model, Chat(tokenizer, {}))


def recited(engine: Engine, *stop: str, max_new_tokens: int = 80) -> Any:
    decode = Decode(temperature=0.0, max_new_tokens=max_new_tokens, stop=stop)
    return engine.generate([Request(Prompt("", "?"), decode, (1,))])[0][0]


def test_an_answer_ends_with_the_turn(learnt: TransformersEngine) -> None:
    answer = recited(learnt)
    assert (answer.text, answer.finish) == (ANSWER, "stop")
    assert answer.tokens == len(ANSWER.encode()) + 1  # one token a byte, and the one that closes


@pytest.mark.parametrize("stop", ["不通过", "通", "过\nReason", "\n", "öff", "🙂", "Verdict"])
def test_stop_strings_across_tokens(learnt: TransformersEngine, stop: str) -> None:
    answer = recited(learnt, "never said", stop)
    before, _, _ = ANSWER.partition(stop)
    assert (answer.text, answer.finish) == (before, "stop")
    assert answer.tokens == len((before + stop).encode())


def test_the_first_of_several_stop_strings(learnt: TransformersEngine) -> None:
    assert recited(learnt, "Reason", "通过", "过").text == "Verdict: 不"


def test_an_answer_cut_inside_a_character(learnt: TransformersEngine) -> None:
    answer = recited(learnt, max_new_tokens=len("Verdict: 不".encode()) - 1)
    assert (answer.text, answer.finish) == ("Verdict: �", "length")


def test_a_checkpoint_without_a_template(tmp_path: Path) -> None:
    engine = load(tiny_models.save(tmp_path, "llama", template=None))
    assert engine.count_tokens([Prompt("ab", "cd")]) == [
        len(tiny_models.bpe()("ab\n\ncd\n\n")["input_ids"])
    ]
    assert len(engine.generate([Request(Prompt("ab", "cd"), Decode(max_new_tokens=3), (1,))])) == 1


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32])
def test_dtypes(tmp_path: Path, stored: torch.dtype) -> None:
    tokenizer = tiny_models.bpe()
    tokenizer.save_pretrained(tmp_path)
    tiny_models.model("qwen3", len(tokenizer)).to(stored).save_pretrained(tmp_path)
    asked = [Question(Prompt("s", "u"), ("Verdict: pass", "Verdict: fail"))]
    auto, exact, half = (
        torch.tensor(load(str(tmp_path), torch_dtype=name).score(asked))
        for name in ("auto", "float32", "bfloat16")
    )
    if stored == torch.float32:
        assert torch.equal(auto, exact)
    else:
        assert not HALVES or not torch.equal(auto, exact)
    # products of what is bfloat16 anyway may be, and no more
    assert (auto - exact).norm() < 1e-3 * exact.norm()
    assert not torch.equal(half, exact)


def test_halved_products_are_the_models_alone() -> None:
    one, other = (
        torch.randn(64, 64, generator=torch.manual_seed(1)),
        torch.randn(64, 64, generator=torch.manual_seed(2)),
    )
    layer = nn.Linear(64, 64, bias=False)
    layer.weight = nn.Parameter(other.T.bfloat16().float(), requires_grad=False)
    exact = one @ other.bfloat16().float()
    use_half_products(layer)
    assert has_half_products(layer)
    assert (layer(one) - exact).norm() < 1e-2 * exact.norm()
    assert not HALVES or not torch.equal(layer(one), exact)
    assert torch.equal(one @ other.bfloat16().float(), exact)


def test_eos_of_the_generation_config_ends_an_answer(
    folders: dict[str, str], tmp_path: Path
) -> None:
    asked = Request(Prompt("s", "u"), Decode(temperature=0.0, max_new_tokens=12), (1,))
    model, tokenizer = loaded(folders["llama"], "llama")
    ids = prompt_ids(tokenizer, asked.prompt)
    first = int(model(ids).logits[0, -1].argmax())
    model.generation_config.eos_token_id = [first, 2]
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    answer = load(str(tmp_path)).generate([asked])[0][0]
    assert (answer.tokens, answer.finish) == (1, "stop")


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such/folder", "~/no/such/folder"])
def test_a_missing_folder(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.model_name_or_path.*no such folder") as caught:
        load(name)
    assert caught.value.value == name


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.model_name_or_path.*config\.json"):
        load(str(tmp_path))


def test_a_checkpoint_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_architecture"}))
    with pytest.raises(EngineError, match=r"model\.model_name_or_path.*could not be loaded"):
        load(str(tmp_path))


def test_a_checkpoint_without_safetensors(folders: dict[str, str], tmp_path: Path) -> None:
    for file in Path(folders["qwen3"]).iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(EngineError, match="safetensors"):
        load(str(tmp_path))


def test_a_checkpoint_that_brings_code(folders: dict[str, str], tmp_path: Path) -> None:
    for file in Path(folders["qwen3"]).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    brought = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    config = json.loads((tmp_path / "config.json").read_text()) | {
        "model_type": "mine",
        "auto_map": brought,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"model\.trust_remote_code"):
        load(str(tmp_path))


def test_an_attention_that_is_not_there(folders: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"model\.attn_implementation"):
        load(folders["qwen3"], attn_implementation="no_such_attention")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(folders: dict[str, str]) -> None:
    with pytest.raises(StagebError, match="cuda"):
        build(ModelConfig(model_name_or_path=folders["qwen3"]), "cuda:0")


@pytest.mark.parametrize(("how", "says"), DAMAGES)
def test_a_checkpoint_that_is_not_whole(
    folders: dict[str, str], tmp_path: Path, how: str, says: str
) -> None:
    shutil.copytree(folders["qwen3"], tmp_path, dirs_exist_ok=True)
    damage(tmp_path / "model.safetensors", how, "model.norm.weight")
    with pytest.raises(EngineError, match=rf"model\.model_name_or_path.*{says}"):
        load(str(tmp_path))


NAMED_CODE = [
    ({"attn_implementation": "owner/kernel@rev"}, "attn_implementation 'owner/kernel@rev'"),
    (
        {"_attn_implementation": {"text_config": "paged|owner/kernel:f"}},
        "_attn_implementation 'paged|owner/kernel:f'",
    ),
    (
        {"per_layer_config": [{"experts_implementation": "owner/kernel"}]},
        "experts_implementation 'owner/kernel'",
    ),
    (
        {"quantization_config": {"quant_method": "mxfp4"}},
        "quantization_config.quant_method 'mxfp4'",
    ),
]


@pytest.mark.parametrize(
    ("extra", "told"), NAMED_CODE, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize(
    "opens",
    [lambda model: build(model, "cpu"), lambda model: outline(model, "cpu")],
    ids=["load", "outline"],
)
def test_a_checkpoint_whose_config_names_code_of_the_hub(
    folders: dict[str, str],
    tmp_path: Path,
    extra: dict[str, Any],
    told: str,
    opens: Callable[[ModelConfig], object],
) -> None:
    shutil.copytree(folders["qwen3"], tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | extra))
    with pytest.raises(ConfigError) as caught:
        opens(ModelConfig(model_name_or_path=str(tmp_path)))
    assert str(caught.value).endswith(
        f"model.trust_remote_code: False: {tmp_path}: its config.json has {told}, code that "
        f"would be fetched and run; set it to true if you trust its author, or choose another model"
    )


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.json", {"num_labels": 10**9}, "has num_labels 1e+09, more than any model has"),
        (
            "config.json",
            {"text_config": {"num_hidden_layers": 10**7}},
            "has num_hidden_layers 1e+07, more than any model",
        ),
        (
            "config.json",
            {"max_position_embeddings": 10**30},
            "has max_position_embeddings 1e+30, more than any",
        ),
        ("config.json", {"max_position_embeddings": "x"}, "expected int"),
        ("config.json", {"num_attention_heads": 0}, ""),
        ("config.json", [3], ""),
        ("config.json", 3, ""),
        ("tokenizer.json", {"version": "1.0", "model": 3}, ""),
        ("tokenizer.json", [], ""),
        ("tokenizer_config.json", {"model_max_length": "x"}, ""),
        ("generation_config.json", [[]], ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize(
    "opens",
    [lambda model: build(model, "cpu"), lambda model: outline(model, "cpu")],
    ids=["load", "outline"],
)
def test_a_checkpoint_with_nonsense_is_refused_in_one_line(
    folders: dict[str, str],
    tmp_path: Path,
    file: str,
    content: Any,
    told: str,
    opens: Callable[[ModelConfig], object],
    request: pytest.FixtureRequest,
) -> None:
    if file == "generation_config.json" and "outline" in request.node.name:
        pytest.skip("an outline does not read it")
    shutil.copytree(folders["qwen3"], tmp_path, dirs_exist_ok=True)
    known = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(
        json.dumps(known | content if isinstance(content, dict) else content)
    )
    with pytest.raises(EngineError) as caught:
        opens(ModelConfig(model_name_or_path=str(tmp_path)))
    assert str(tmp_path) in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_names_what_is_installed_names_no_code(
    folders: dict[str, str], tmp_path: Path
) -> None:
    config = json.loads(Path(folders["qwen3"], "config.json").read_text())
    config |= {
        "attn_implementation": "sdpa",
        "quantization_config": {"quant_method": "gptq", "dataset": ["a/b"]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_code(str(tmp_path)) is None
