#!/usr/bin/env bash
# What GPUs and some 16 cores should show of loop growth in MINUTES (8.5) a call: PPO and all that it is compared with, at
# equal FLOPs, on wide.yaml and on images; convolutional hosts and dense ones.
#
#   lab/bench/growth_gpu.sh FASHION_NPZ CIFAR_NPZ OUT [MINUTES]      # files of images: "-" where PARTS has none
#
# OUT gets outcomes.jsonl (a row for each part, run, environment and arm), tables.txt, log.txt, runs.tgz and a picture of each
# part, whatever was cut short. Runs learn for LEARN percent of the time, as many updates as that allows at the pace of their
# first two, and are compared in the rest. They stay in RUNS, and a later call goes on with them. Three calls give wide.yaml 17
# minutes of learning:
#
#   PARTS=wide LEARN=95 MORE=8.5 lab/bench/growth_gpu.sh - - OUT 9
#   PARTS=wide LEARN=95 lab/bench/growth_gpu.sh - - OUT 9
#   PARTS=wide LEARN=0 lab/bench/growth_gpu.sh - - OUT 9
#
# Variables: PYTHON; PARTS ("wide images"); RUNS, a folder; FROM, a runs.tgz to begin with where RUNS is new (another machine);
# LEARN (45); MORE, minutes that later calls will learn, so that rates are annealed over all of them (0); TINY, further keys of all
# runs; CUDA_VISIBLE_DEVICES (0), among which seeds are dealt; and of wide.yaml (WIDE_) and of images (IMAGE_) each: SEEDS
# ("1 2 3"), DEVICE where they learn, EPISODES of an update, TESTED environments. DENSE_DEVICE is where mlp hosts of images
# learn (cpu, a core for each), IMAGE_BLOCK how many hosts of images make a batch.
set -euo pipefail
fashion=$(realpath -m "$1") cifar=$(realpath -m "$2") out=$(realpath -m "$3") minutes=${4:-8.5}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python} runs=${RUNS:-/tmp/growth-runs}
wide_on=${WIDE_DEVICE:-cuda} images_on=${IMAGE_DEVICE:-cuda} dense_on=${DENSE_DEVICE:-cpu}
wide_episodes=${WIDE_EPISODES:-128} image_episodes=${IMAGE_EPISODES:-32} image_block=${IMAGE_BLOCK:-16}
wide_tested=${WIDE_TESTED:-128} images_tested=${IMAGE_TESTED:-16}
learn=${LEARN:-45} parts=" ${PARTS:-wide images} "
read -ra seeds <<<"${WIDE_SEEDS:-1 2 3}"
read -ra image_seeds <<<"${IMAGE_SEEDS:-1 2 3}"
read -ra tiny <<<"${TINY:-}"
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-0}"
read -r total more < <("$python" -c "print(int(60 * $minutes), int(60 * ${MORE:-0}))")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
data=$runs/.data kept=$runs/.outcomes
mkdir -p "$out" "$runs"
[ -z "${FROM:-}" ] || [ -e "$kept" ] || tar -C "$runs" -xzf "$FROM"
mkdir -p "$kept" "$data/fashion_mnist" "$data/cifar10"
ln -sf "$fashion" "$data/fashion_mnist/images.npz"
ln -sf "$cifar" "$data/cifar10/images.npz"
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1

say() { echo "[$SECONDS s] $*" >>"$made/progress"; }

# by SECOND NAME COMMAND...: until that second of this script at most; all that it says is kept
by() {
    local left=$(($1 - SECONDS)) name=$2 code=0
    shift 2
    ((left > 15)) || { say "$name: no time left"; return 0; }
    timeout -k 5 "$left" "$@" >>"$made/$name.said" 2>&1 || code=$?
    say "$name: ended with $code"
}

# on_gpu SEED COMMAND...: the command sees the GPU of this seed alone
on_gpu() { CUDA_VISIBLE_DEVICES=${gpus[$1 % ${#gpus[@]}]} "${@:2}"; }

# updates SECONDS RUN...: what growth.updates should be, for runs to go on for so long at the pace of the slowest; never fewer
# than they have
updates() {
    "$python" - "$@" <<'PYTHON'
import json, pathlib, statistics, sys, yaml
seconds, *runs = sys.argv[1:]
rows = [[json.loads(line) for line in pathlib.Path(run, "timings.jsonl").read_text().splitlines()] for run in runs]
have = [yaml.safe_load(pathlib.Path(run, "config.yaml").read_text())["growth"]["updates"] for run in runs]
slowest = max(statistics.median(row["seconds"] for row in (of[1:] or of)[-9:]) for of in rows)
print(max(*have, max(map(len, rows)) + int(max(0.0, float(seconds)) / slowest)))
PYTHON
}

# fit SECOND RUN UPDATES KEY...
fit() {
    local second=$1 run=$2 count=$3
    shift 3
    by "$second" "$run" "$python" -m stageb fit "$@" --growth.updates "$count" --growth.commit_every 1 --fabric.devices 1 \
        --evaluation.environments 1 --log.csv false --log.tensorboard false --log.curves false \
        --output.root "$runs" --output.run_name "$run" ${tiny[@]+"${tiny[@]}"}
}

# learn SECOND NAME "SEED ..." KEY...: a run of each seed, beside each other, all of the same number of updates
learn() {
    local second=$1 name=$2 seed count some=()
    read -ra some <<<"$3"
    shift 3
    for seed in "${some[@]}"; do
        [ -e "$runs/$name-$seed/weights" ] || on_gpu "$seed" fit "$second" "$name-$seed" 2 "$@" --seed "$seed" &
    done
    wait
    # policies that have learnt grow more than the first two updates tell; what is planned can be raised, but not lowered
    if count=$(updates $(((second - SECONDS - 20 + more) * (more ? 7 : 10) / 10)) "${some[@]/#/$runs/$name-}" 2>>"$made/progress"); then
        say "$name: $count updates"
        for seed in "${some[@]}"; do on_gpu "$seed" fit "$second" "$name-$seed" "$count" "$@" --seed "$seed" & done
        wait
    fi
}

# compared NAME PART "SEED ..." ARMS OPTION...: what an earlier call found still holds, unless a run has learnt since
compared() {
    local name=$1 part=$2 some=()
    read -ra some <<<"$3"
    local arms=$4 compared=("${some[@]/#/$runs/$name-}") found="$kept/$name.$part.jsonl"
    shift 4
    ((${#compared[@]} == 1)) || set -- "$@" --also "${compared[@]:1}"
    [ ! -e "$found" ] || [ -z "$(find "${compared[@]/%//weights}" -newer "$found")" ] || rm "$found"
    [ -e "$found" ] ||
        by $((total - 12)) "$name.$part" "$python" -m stageb evaluate "${compared[0]}" --against "$arms" --out "$found" "$@"
}

# Budgets are what the policies spend, so nothing can be compared before they have learnt. Four cores for each group of arms,
# of about equal work; to tune schedules takes thousands of trainings, which are for the GPU.
wide() {
    learn $((total * learn / 100)) wide "${seeds[*]}" --config configs/growth/wide.yaml --fabric.accelerator "$wide_on" \
        --growth.environments "$wide_episodes" --growth.block "$wide_episodes"
    for pair in 1:probe-1,probe-2,heuristic 2:random 3:selective,static-final 4:periodic,static-small,oracle; do
        compared wide "${pair%%:*}" "${seeds[*]}" "${pair#*:}" --accelerator cpu --devices 4 \
            --environments "$wide_tested" --block $((wide_tested / 4)) &
    done
    compared wide 5 "${seeds[*]}" stopped-small,stopped-final --accelerator "$wide_on" \
        --environments "$wide_tested" --block "$wide_tested" &
    wait
}

# of_images TASK KIND: sets name, keys and on for this part
of_images() {
    name=$1-$2 on=$images_on
    keys=(--config "configs/growth/$1.yaml" --task.folder "$data/$1" --growth.environments "$image_episodes"
        --growth.block "$image_block")
    if [ "$2" = mlp ]; then
        on=$dense_on
        keys+=(--host.kind mlp --host.width 16 "--host.blueprints=[norm,mlp,low_rank]")
    fi
}

# judged KIND JOBS: the policies of all seeds, so many comparisons at once; every policy has budgets of its own
judged() {
    local kind=$1 jobs=$2 task seed number name keys on found
    local groups=(probe-1,probe-2,selective,heuristic,random,periodic,static-small,static-final stopped-small,stopped-final)
    [ "$kind" = conv2d ] || groups[0]+=,net2net,gradmax
    for seed in "${image_seeds[@]}"; do
        for task in fashion_mnist cifar10; do
            of_images "$task" "$kind"
            for number in "${!groups[@]}"; do
                while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
                {
                    on_gpu "$seed" compared "$name" "$seed-$number" "$seed" "${groups[number]}" \
                        --folder "$data/$task" --accelerator "$on" --environments "$images_tested" --block "$images_tested"
                    found=$kept/$name.$seed-$number.jsonl
                    [ ! -e "$found" ] || sed -i "s/^{\"run\": [0-9]*,/{\"run\": $((seed - 1)),/" "$found"
                } &
            done
        done
    done
    wait
}

all_images() {
    local task kind name keys on
    for task in fashion_mnist cifar10; do
        for kind in conv2d mlp; do
            of_images "$task" "$kind"
            learn $((total * learn / 100)) "$name" "${image_seeds[*]}" "${keys[@]}" --fabric.accelerator "$on" &
        done
    done
    wait
    judged conv2d $((4 * ${#gpus[@]})) &
    judged mlp "$(nproc)" &
    wait
}

[[ $parts != *" wide "* ]] || wide &
[[ $parts != *" images "* ]] || all_images &
wait

tar -C "$runs" --exclude=./.data -czf "$out/runs.tgz" .
shopt -s nullglob
written=("$kept"/*.jsonl)
if ((${#written[@]})); then
    "$python" -m lab.bench outcomes "${written[@]}" --to "$out/outcomes.jsonl" --pictures "$out" >"$out/tables.txt" || true
    for base in probe-1 heuristic static-final stopped-final; do
        "$python" -m lab.bench outcomes "$out/outcomes.jsonl" --base "$base" >>"$out/tables.txt" || true
    done
fi
{
    cat "$made/progress"
    for said in "$made"/*.said; do echo "== ${said##*/}" && tail -n 40 "$said"; done
    for run in "$runs"/*/; do
        echo "== $run"
        tail -n 400 "$run/metrics.jsonl" "$run/timings.jsonl" || true
    done
} >"$out/log.txt" 2>&1
