#!/usr/bin/env bash
# bin/stageb.sh [gpus=0,1,2,3] config=PATH [key=value ...]
#
# Starts `stageb fit` on the named GPUs: one makes one process, several a rank each by torchrun, none the CPU. Every other key=value
# is a config key, such as runner.epochs=2; options (--fresh) pass through.
source "$(dirname "${BASH_SOURCE[0]}")/setup"

gpus=
config=
rest=()
for argument in "$@"; do
    case $argument in
    gpus=*) gpus=${argument#gpus=} ;;
    config=*) config=${argument#config=} ;;
    --*) rest+=("$argument") ;;
    ?*=*) rest+=("--$argument") ;;
    *)
        echo "bin/stageb.sh: $argument: expected key=value" >&2
        exit 2
        ;;
    esac
done
if [ -z "$config" ]; then
    echo "usage: bin/stageb.sh [gpus=0,1,2,3] config=PATH [key=value ...]" >&2
    exit 2
fi
if [ -n "${gpus//[0-9,]/}" ]; then
    echo "bin/stageb.sh: gpus=$gpus: expected GPU numbers with commas between them, such as gpus=0,1" >&2
    exit 2
fi

IFS=, read -ra numbers <<<"$gpus"
export CUDA_VISIBLE_DEVICES=$gpus
count=${#numbers[@]}
fit=(stageb fit)
case $count in
0) place=(--fabric.accelerator=cpu --fabric.devices=1 --fabric.strategy=auto) ;;
1) place=(--fabric.accelerator=cuda --fabric.devices=1 --fabric.strategy=auto) ;;
*)
    place=(--fabric.accelerator=cuda "--fabric.devices=$count" --fabric.strategy=ddp)
    fit=(torchrun --standalone "--nproc-per-node=$count" "$ROOT/bin/fit.py")
    cores=$(nproc) # torchrun would give every rank one thread
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > count ? cores / count : 1))}
    ;;
esac
exec "${fit[@]}" --config "$config" "${place[@]}" ${rest[@]+"${rest[@]}"}
