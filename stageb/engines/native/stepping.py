"""Rows that step together to the ends of their answers, a token a pass, or more where these can be
drafted.

*Drafts*: in an answer of a fixed form much follows from what stands before it, such as braces and
the names of keys. A pass is then fed a row's last token and the draft behind it, and gives what the
model would draw at each place: the draft is kept as far as it is that, and the first other token
takes its place (Leviathan et al. 2023, speculative decoding; a draw here is a function of logits,
key and position, so equality accepts). So answers are those of a token a pass, whatever is drafted.
Columns of drafts that were not kept stay in the cache, and no row looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stageb.engines.native.memory import Past
from stageb.engines.native.rows import LiveBatch, draw_tokens
from stageb.engines.protocol import Ids

COMPACT_BELOW = 0.75  # a batch with a smaller share of live rows is worth a copy without the others
# steps between two looks at the tokens; on a GPU each look waits for the device
STEPS_PER_LOOK = {"cpu": 1}
STEPS_PER_LOOK_ON_GPU = 4

Draft = Callable[[Sequence[int]], Ids]  # an answer's first ids to those that are likely to follow
# ids, positions, mask, past, columns to keep; to logits
Forward = Callable[[Tensor, Tensor, Tensor, Past, int], Tensor]


def step_to_the_end(
    live: LiveBatch, logits: Tensor, forward: Forward, longest: int, draft: Draft | None
) -> None:
    """Decode the rows of ``live`` to their ends, from the logits (rows, vocabulary) behind their
    prompts; ``longest`` is the model's context. What ``draft`` gives is fed ahead, for which
    attention must be that of ``attention.py``."""
    if draft:
        _step_with_drafts(live, logits, forward, longest, draft)
    else:
        _step_by_token(live, logits, forward, longest)


def _step_by_token(live: LiveBatch, logits: Tensor, forward: Forward, longest: int) -> None:
    limit = max(answer.limit for answer in live.answers)
    steps_per_look = STEPS_PER_LOOK.get(logits.device.type, STEPS_PER_LOOK_ON_GPU)
    unseen: list[Tensor] = []
    for step in range(limit):
        tokens = draw_tokens(logits, live.settings, step)
        unseen.append(tokens)
        if len(unseen) == steps_per_look or step == limit - 1:
            for answer, new in zip(live.answers, torch.stack(unseen, 1).tolist(), strict=True):
                answer.extend(new)
            unseen = []
            going = [index for index, answer in enumerate(live.answers) if answer.finish is None]
            if not going:
                return
            if len(going) < COMPACT_BELOW * len(live.answers):
                index = torch.tensor(going, device=logits.device)
                live.keep(going, index, logits)
                tokens = tokens[index]
        # Rows that have ended step on until they are left out; they must not step out of the
        # model's context.
        positions = (live.positions + step).clamp(max=longest - 1)
        mask = live.mask[:, : live.cached + step + 1]
        logits = forward(tokens[:, None], positions[:, None], mask, live.past, 1)[:, -1]


def _step_with_drafts(
    live: LiveBatch, logits: Tensor, forward: Forward, longest: int, draft: Draft
) -> None:
    device = logits.device
    live.mask = live.mask[:, : live.cached].bool()
    for layer in live.past.cache.layers:
        layer.apart = True
    drafts: list[Ids] = [()] * len(live.answers)
    logits = logits[:, None]  # behind each row's last token, and behind each of its draft
    while True:
        rows, width, _ = logits.shape
        places = torch.tensor([len(answer.ids) for answer in live.answers], device=device)[:, None]
        columns = torch.arange(width, device=device)
        settings = live.settings.part(torch.arange(rows, device=device).repeat_interleave(width))
        drawn = (
            draw_tokens(logits.flatten(0, 1), settings, (places + columns).flatten())
            .view(rows, width)
            .tolist()
        )
        right = [
            _count_right(drafted, tokens) for drafted, tokens in zip(drafts, drawn, strict=True)
        ]
        for answer, tokens, count in zip(live.answers, drawn, right, strict=True):
            answer.extend(tokens[: count + 1])
        if live.mask.shape[1] > live.cached:  # the columns of the last pass
            live.mask[:, -width:] = columns <= torch.tensor(right, device=device)[:, None]
        going = [index for index, answer in enumerate(live.answers) if answer.finish is None]
        if not going:
            return
        if len(going) < COMPACT_BELOW * len(live.answers):
            live.keep(going, torch.tensor(going, device=device), logits)
        drafts = [
            () if answer.finish else draft(answer.ids)[: max(0, answer.limit - len(answer.ids) - 1)]
            for answer in live.answers
        ]
        logits = forward(
            *_build_inputs(live, drafts, longest), live.past, 1 + max(map(len, drafts))
        )


def _count_right(drafted: Ids, drawn: Sequence[int]) -> int:
    """How many of the tokens ``drafted`` are as ``drawn``, up to the first that is not."""
    return next(
        (place for place, token in enumerate(drafted) if token != drawn[place]), len(drafted)
    )


def _build_inputs(
    live: LiveBatch, drafts: Sequence[Ids], longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Build the inputs of one forward pass: ids and positions (rows, columns) of last tokens and
    drafts, padded behind them, and the mask (rows, 1, columns, columns of all). The rows' own mask
    grows by the new columns."""
    device, width = live.mask.device, 1 + max(map(len, drafts))
    pairs = list(zip(live.answers, drafts, strict=True))
    ids = torch.tensor(
        [[answer.ids[-1], *each, *[0] * (width - 1 - len(each))] for answer, each in pairs],
        device=device,
    )
    columns = torch.arange(width, device=device)
    behind = torch.tensor([len(answer.ids) - 1 for answer, _ in pairs], device=device)
    positions = ((live.positions + behind)[:, None] + columns).clamp(max=longest - 1)
    filled = columns <= torch.tensor([len(each) for each in drafts], device=device)[:, None]
    before = live.mask[:, None].expand(-1, width, -1)
    causal = filled[:, None] & (columns <= columns[:, None])
    live.mask = torch.cat([live.mask, filled], 1)
    return ids, positions, torch.cat([before, causal], 2)[:, None]
