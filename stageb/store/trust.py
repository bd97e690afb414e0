"""What the folder of a run may decide for the person who gives it to a command, and what that person alone may.

Runs are handed on, so a folder may be somebody else's work, and anything may stand in its ``config.yaml``. Every key of a
loop's config is one of two things:

- *data*: numbers, words and prompts. They decide what comes of a command, and may be taken from a folder.
- *authority*: what names code, a server, a secret, a checkpoint or a file. It is taken from the user's own command line or
  config, and never from a folder, since it would act in the user's name.

The tables below are the one place where this is decided. A key in neither counts as authority.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown

CODE = "code that runs"
CHECKPOINT = "a checkpoint that is loaded, from this machine or the hub"
READ = "files that are read"
WRITTEN = "files that are written"
DEVICES = "devices that work"

_MODEL = {
    "model.engine": CODE,
    "model.model_name_or_path": CHECKPOINT,
    "model.attn_implementation": CODE,
    "model.trust_remote_code": "whether code of a checkpoint runs",
    "model.base_url": "the server that is sent the tickets",
    "model.api_key_env": "the secret that the server is sent",
    "model.tokenizer": CHECKPOINT,
}

AUTHORITY: Mapping[str, str] = {
    **_MODEL,
    **{f"reflection.{key}": what for key, what in _MODEL.items()},
    "selection": CODE,
    "gate.choose": CODE,
    "loggers.class_path": CODE,
    "loggers.init_args": CODE,
    "tickets": READ,
    "guidance.path": READ,
    "guidance.reset_on_rerun": WRITTEN,
    "output.root": WRITTEN,
    "output.run_name": WRITTEN,
    "task.folder": READ,
    "host.make": CODE,
    "data.train": READ,
    "data.val": READ,
    "data.test": READ,
    "data.images": READ,
    "fabric.accelerator": DEVICES,
    "fabric.devices": DEVICES,
    "fabric.num_nodes": DEVICES,
    "fabric.strategy": DEVICES,
}
"""Keys, and what each of them names."""

_DATA = {
    "": "loop seed report jump_reflection on_bad_record log_level",
    "columns": "mission mission_name group_id label passes fails texts decimal together",
    "split": "train val test seed",
    "prompt": "language verdict_words style prefill demonstration_tokens",
    "model": (
        "torch_dtype quantize device_map chat_template_kwargs image_pixels thinking_ends memory_share concurrency "
        "timeout_s gradient_checkpointing compile"
    ),
    "model.small": (
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
        "vision_hidden_size vision_depth vision_num_heads patch_size spatial_merge_size "
        "max_position_embeddings stem seed"
    ),
    "guidance": "retention",
    "sampler": "samples_per_decode max_prompt_tokens micro_batch_size use_images reasons",
    "sampler.grid": "temperature top_p top_k max_new_tokens repetition_penalty seed stop",
    "runner": (
        "epochs per_rank_rollout_batch_size tickets_per_epoch judge log_every_s max_unreadable total_steps "
        "per_rank_num_envs rollout_steps global_batch commit_every log_every compile divergence_every"
    ),
    "reflection": (
        "scope batch_size num_proposals max_operations max_cases evidence evidence_tickets arithmetic phrases "
        "lists counted scales max_prompt_tokens max_rules max_guidance_tokens max_rule_chars temperature top_p "
        "max_new_tokens"
    ),
    "reflection.model": (
        "torch_dtype quantize device_map chat_template_kwargs image_pixels thinking_ends memory_share concurrency timeout_s"
    ),
    "gate": "alpha pool_size race_size race_chunk judge_by fp_weight fn_weight removal_margin provisional",
    "early_stop": "patience reflections",
    "budget": "rollouts tokens seconds",
    "distill": "size temperature",
    "manual_review": "min_verdict_agreement",
    "fabric": "precision threads timeout_s load_timeout_s",
    "log": "csv tensorboard curves",
    "game": "size patience food death step approach",
    "agent": "channels blocks hidden patch",
    "ppo": (
        "gamma gae_lambda clip epochs value_weight entropy_weight entropy_weight_end learning_rate "
        "learning_rate_end max_grad_norm target_kl"
    ),
    "evaluation": "every episodes environments samples pictures patience views",
    "task": "name fit_examples validation validation_examples slot blueprint seeds inner",
    "host": "kind width blueprints blend epochs steps_per_epoch batch_size learning_rate slots seed_learning_rate precision",
    "gates": "training_epochs blending_epochs probation_epochs least_contribution embargo_epochs vanishing exploding",
    "reward": "size_price shaping scale",
    "policy": "hidden minibatches",
    "growth": "controller updates environments block commit_every",
    "data": "prompt polygons",
    "answer": "box_first object_budget order",
    "augmentation": "mirror upend turn scale_jitter scale_jitter_end light copy_paste",
    "tuner": "kind rank alpha dropout use_dora target_modules",
    "losses": "text coordinates soft_width l1 giou against reward",
    "schedule": (
        "steps pattern optimizer learning_rate learning_rate_end warmup_steps weight_decay max_grad_norm "
        "average_weights commit_every"
    ),
    "channel_a": "samples_per_step n_softctx_iter",
    "channel_b": "rollouts_per_step max_new_tokens temperature top_p min_iou false_positives",
    "channel_c": "images_per_step answers_per_image duplicate_price object_credit",
    "packing": "global_max_length max_length overlong",
    "topology": "rollout learn staleness",
}
"""By section, the names of keys."""

DATA = frozenset(f"{section}.{name}".removeprefix(".") for section, names in _DATA.items() for name in names.split())


@dataclass(frozen=True)
class WithheldValue:
    """Stands for a value that a folder wants and may not set. What the user gives takes its place, or else it is refused."""

    folder: str
    key: str
    value: Any


def take_data(folder: str, values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``values``, a section of the config in ``folder`` as plain data, with authority that is not as in ``defaults``
    withheld."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        key, default = f"{prefix}{name}", defaults[name]
        if value == default or _is_data(key, value):
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(default, Mapping):
            found[name] = take_data(folder, value, default, f"{key}.")
        else:
            found[name] = WithheldValue(folder, key, value)
    return found


def _is_data(key: str, value: Any) -> bool:
    if key in DATA:
        return True
    if isinstance(value, Mapping) and value:
        return all(_is_data(f"{key}.{name}", inner) for name, inner in value.items())
    if isinstance(value, list) and value:
        return all(_is_data(key, item) for item in value)
    return AUTHORITY.get(key) == CHECKPOINT and _is_checkpoint(value)


def _is_checkpoint(name: Any) -> bool:
    """Whether this is a plain checkpoint of this machine, which is as good as data: nothing of it runs, as long as
    trust_remote_code is not set, and nothing is fetched. An adapter names another checkpoint; a colon stands in names of
    functions."""
    if not isinstance(name, str) or ":" in name:
        return False
    folder = Path(name).expanduser()
    return (folder / "config.json").is_file() and not (folder / "adapter_config.json").exists()


def file_of(folder: Path, path: Path) -> Path:
    """``path``, a file in the folder of a run, or a place where none is. Raises ``InputError`` where a link leads out of the
    folder, or something stands there that is no file, and might keep its reader waiting."""
    try:
        real, within = path.resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, or a name that no file can have
        raise InputError(shown(f"{path}: cannot be read: {error}; take it out of the folder")) from None
    if not real.is_relative_to(within):
        raise InputError(shown(f"{path}: leads out of {folder} by a link; put the file itself in its place"))
    if real.exists() and not real.is_file():
        raise InputError(shown(f"{path}: not a file; take it out of the folder"))
    return path


def check(values: Mapping[str, Any]) -> None:
    """Raise ``InputError`` where something is withheld still: what, and the options that would set it."""
    left = list(_find_withheld(values))
    if left:
        refuse(left[0].folder, [(each.key, f"--{each.key}", each.value) for each in left])


def refuse(folder: str | Path, asked: Sequence[tuple[str, str, Any]]) -> None:
    """Raise ``InputError`` unless nothing is ``asked``: keys that only a user may set, each with the option that sets it and
    the value that the config in ``folder`` has."""
    if asked:
        lines = [
            f"  {key} ({AUTHORITY.get(key, 'authority')}): {shown(_format_value(value), 200)}" for key, _, value in asked
        ]
        options = " ".join(f"{option} {shlex.quote(shown(_format_value(value), 200))}" for _, option, value in asked)
        raise InputError(
            "\n".join(
                [
                    f"{shown(str(folder))}: its config.yaml names what the folder of a run may not choose for you:",
                    *lines,
                    "Choose it yourself, on the command line or in a --config of your own. To have what stands there, if "
                    "you know where the folder comes from,",
                    f"add: {options}",
                ]
            )
        )


def _find_withheld(value: Any) -> Iterator[WithheldValue]:
    if isinstance(value, WithheldValue):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _find_withheld(inner)


def _format_value(value: Any) -> str:
    """A value as an option has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
