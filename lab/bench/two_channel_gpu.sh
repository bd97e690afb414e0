#!/usr/bin/env bash
# What one GPU should show of loop two_channel, in one call of some nine minutes on an H200, without opening test:
# equal bytes at 600 tokens, seconds of a step, and what stem, pasted cells, noise and larger batches are worth, by val.
#
#   lab/bench/two_channel_gpu.sh BCCD OUT [STEPS]
#
# BCCD holds the photographs of blood cells as VOC has them; OUT gets what was measured, as JSON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bccd=$1 out=$2 steps=${3:-900}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$out"
for split in train val; do python -m stageb boxes voc "$bccd" --split $split --to "$made/$split.jsonl"; done
config=(--config configs/two_channel/bccd.yaml --set "data.train=$made/train.jsonl" --set "data.val=$made/val.jsonl")
config+=(--set data.test= --set "data.images=$bccd")

python -m pytest -q tests/two_channel/test_two_gpu.py -k "blocks or half_precision or beside" || true
python -m lab.bench two_channel learn "${config[@]}" --steps 40 --json "$out/learn.json"
OMP_NUM_THREADS=2 python -m lab.bench arms "${config[@]}" --set "schedule.steps=$steps" --set "evaluation.every=$((steps / 3))" \
    --set "schedule.commit_every=$steps" --at-once 7 --json "$out/arms.json" \
    --arm "shipped" \
    --arm "name_first answer.box_first=false" \
    --arm "stem model.small.stem=convolution" \
    --arm "paste augmentation.copy_paste=4 packing.max_length=1800" \
    --arm "stem_paste model.small.stem=convolution augmentation.copy_paste=4 packing.max_length=1800" \
    --arm "noise answer.object_budget=40 channel_b.max_new_tokens=768" \
    --arm "batch128 channel_a.samples_per_step=128 packing.global_max_length=65536 schedule.steps=$((steps / 3)) evaluation.every=$((steps / 9))"
