#!/usr/bin/env bash
# What one GPU should show of loop two_channel, in one call of some nine minutes on an H200, without opening test:
# equal bytes at 600 tokens, seconds of a step, and what views that grow to whole images are worth, by val.
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
    --arm "parts augmentation.scale_jitter_end=[1.0,3.3]" \
    --arm "whole augmentation.scale_jitter=[0.8,1.25]" \
    --arm "gentle augmentation.scale_jitter=[1.0,2.0]" \
    --arm "box_first answer.box_first=true" \
    --arm "noise answer.box_first=true answer.object_budget=40 channel_b.max_new_tokens=768" \
    --arm "batch128 channel_a.samples_per_step=128 packing.global_max_length=32768 schedule.steps=$((steps / 3)) evaluation.every=$((steps / 9))"
