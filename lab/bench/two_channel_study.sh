#!/usr/bin/env bash
# Whether a detector's own answers teach it more than the truth alone: from several starts, each gone on with in several ways.
#
#   lab/bench/two_channel_study.sh TRAIN VAL TEST IMAGES OUT PART     # JSON Lines of three sets, the folder of their images
#
# PART, one after the other; called again, a part that was cut off goes on from its commits:
#
#   starts  channel A alone, a run for each of STARTS ("1 2 3") that knows no noise and one that does; START_STEPS (3000)
#   rates   each arm from the first start with each of RATES (".0001 .0003 .001"), RATE_STEPS (120) steps
#   time    each arm from each start with each of SEEDS ("1 2 3"), with the rate that was best on val, for SECONDS_EACH (120),
#           going by the seconds of a step in `rates`: let as many runs share a GPU there as here
#   images  the same, for as many steps as teach IMAGES (6720)
#   test    what the best checkpoints by val of starts and arms, those of ROUND (time or images), answer to TEST
#   gains   of each arm on arm A there, with 95 % intervals
#
# Arms: A, the truth alone; B, every third step own answers set right; C, every third step by reward; AN and BN, A and B from
# the starts that know noise, where B names false positives so.
#
# Variables besides: CONFIG (configs/two_channel/bccd.yaml), ARMS ("A B C AN BN"), AT_ONCE (3) runs beside each other on each
# GPU of CUDA_VISIBLE_DEVICES (0), TINY, further keys of all runs, PYTHON.
set -euo pipefail
train=$(realpath "$1") val=$(realpath "$2") test=$(realpath "$3") images=$(realpath "$4") out=$(realpath -m "$5") part=$6
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python} config=${CONFIG:-configs/two_channel/bccd.yaml} round=${ROUND:-time}
read -ra starts <<<"${STARTS:-1 2 3}"
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra rates <<<"${RATES:-.0001 .0003 .001}"
read -ra arms <<<"${ARMS:-A B C AN BN}"
read -ra tiny <<<"${TINY:-}"
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-0}"
mkdir -p "$out"

noise=(--answer.object_budget=40 --channel_b.max_new_tokens=768 --channel_b.false_positives=noise)
declare -A ways=(
    [A]="--schedule.pattern=[A]"
    [B]="--schedule.pattern=[A,A,B]"
    [C]="--schedule.pattern=[A,A,C] --channel_c.images_per_step=8"
    [AN]="--schedule.pattern=[A] ${noise[*]}"
    [BN]="--schedule.pattern=[A,A,B] ${noise[*]}"
)

# Runs wait in a list, a line of keys each, the run's name first.
list=$(mktemp)
trap 'rm -f "$list"' EXIT

enlist() { # NAME STEPS LOOKS KEY...
    local name=$1 steps=$2 looks=$3
    shift 3
    echo "$name --schedule.steps=$steps --evaluation.every=$(((steps + looks - 1) / looks)) $*" >>"$list"
}

onward() { # NAME ARM START SEED RATE STEPS LOOKS: go on from a start by an arm
    local from=plain
    [[ $2 == *N ]] && from=noise
    enlist "$1" "$6" "$7" "${ways[$2]} --model.model_name_or_path=$out/$from-$3/best --seed=$4 --schedule.learning_rate=$5" \
        "--schedule.learning_rate_end=0.00001 --schedule.warmup_steps=10 --augmentation.scale_jitter=[0.8,1.25]"
}

fit_one() { # NAME KEY...
    read -ra all <<<"$keys"
    $python -m stageb fit --config "$config" --data.train="$train" --data.val="$val" --data.images="$images" \
        --output.root="$out" --output.run_name="$1" "${@:2}" "${all[@]}" >"$out/$1.log" 2>&1 || echo "$1: $(tail -1 "$out/$1.log")"
}

evaluate_one() { # NAME
    [ -f "$out/$1.told" ] || $python -m stageb evaluate "$out/$1" --data "$test" --images "$images" --pictures 0 \
        --told "$out/$1.told" >"$out/$1.log" 2>&1 || echo "$1: $(tail -1 "$out/$1.log")"
}

run_all() { # FUNCTION: called with the words of each line of the list, the lines dealt over the GPUs
    export python config train val test images out
    export keys="--data.test= --evaluation.views=1 --log.tensorboard=false --fabric.devices=1 ${tiny[*]}"
    export -f fit_one evaluate_one
    awk -v gpus="${gpus[*]}" -v act="$1" 'BEGIN { n = split(gpus, gpu, " ") } { print gpu[NR % n + 1] "\n" act " " $0 }' "$list" |
        xargs -d '\n' -n 2 -P $((${AT_ONCE:-3} * ${#gpus[@]})) bash -c 'read -ra words <<<"$1"; CUDA_VISIBLE_DEVICES=$0 "${words[@]}"'
}

report() { # NAME...: of each run the best look at val, the seconds of its steps, and of all of them
    "$python" - "$out" "$@" <<'END'
import json, pathlib, statistics, sys
for name in sys.argv[2:]:
    files = [pathlib.Path(sys.argv[1], name, f"{file}.jsonl") for file in ("metrics", "timings")]
    if not files[1].is_file():
        continue
    metrics, timings = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    best = max((row for row in metrics if "val/f1_50" in row), key=lambda row: row["val/f1_50"])
    seconds = [row["time/step_s"] for row in timings]
    half = statistics.fmean(seconds[len(seconds) // 2 :])
    print(f"{name} val F1 {best['val/f1_50']:.3f} mAP50 {best['val/mAP50']:.3f} at {best['step']} of {len(seconds)},", end=" ")
    print(f"{half:.3f} s a step, {sum(seconds):.0f} s")
END
}

choose() { # ARM: the rate that was best on val in `rates`, and the seconds of a step there
    for rate in "${rates[@]}"; do report "rate-$1-$rate" | sed "s/^rate-[^ ]*/$rate/"; done | sort -k4,4nr | head -1 |
        sed -E 's/^([^ ]+) .*, ([0-9.]+) s a step.*/\1 \2/'
}

each() { # ROUND ARM: the names of its runs
    for start in "${starts[@]}"; do
        for seed in "${seeds[@]}"; do echo "$1-$2-$start-$seed"; done
    done
}

case $part in
starts)
    for start in "${starts[@]}"; do
        for kind in plain noise; do
            more=()
            [ "$kind" = noise ] && more=("${noise[@]}")
            enlist "$kind-$start" "${START_STEPS:-3000}" 3 --schedule.commit_every=250 --seed="$start" \
                --model.small.seed="$start" "${more[@]}"
        done
    done
    ;;
rates)
    for arm in "${arms[@]}"; do
        for rate in "${rates[@]}"; do onward "rate-$arm-$rate" "$arm" "${starts[0]}" 1 "$rate" "${RATE_STEPS:-120}" 2; done
    done
    ;;
time | images)
    for arm in "${arms[@]}"; do
        read -r rate seconds < <(choose "$arm") || { echo "$arm: none of its \`rates\` came to an end" && continue; }
        images_of_step=32
        [ "$arm" = C ] && images_of_step=24
        steps=$((${IMAGES:-6720} / images_of_step))
        [ "$part" = time ] && steps=$("$python" -c "print(max(3, round(${SECONDS_EACH:-120} / $seconds)))")
        echo "$arm: $steps steps at $rate"
        for start in "${starts[@]}"; do
            for seed in "${seeds[@]}"; do onward "$part-$arm-$start-$seed" "$arm" "$start" "$seed" "$rate" "$steps" 3; done
        done
    done
    ;;
test)
    for start in "${starts[@]}"; do printf '%s\n' "plain-$start" "noise-$start" >>"$list"; done
    for arm in "${arms[@]}"; do each "$round" "$arm" >>"$list"; done
    run_all evaluate_one
    exit
    ;;
gains)
    told() { each "$round" "$1" | sed "s|.*|$out/&.told|"; }
    for arm in "${arms[@]:1}"; do
        echo "a: ${arms[0]}, b: $arm"
        # shellcheck disable=SC2046
        $python -m lab.bench boxes --data "$test" --images "$images" --per-start "${#seeds[@]}" \
            --a $(told "${arms[0]}") --b $(told "$arm")
    done
    exit
    ;;
*) echo "PART: starts, rates, time, images, test or gains, not $part" >&2 && exit 2 ;;
esac
run_all fit_one
# shellcheck disable=SC2046
report $(cut -d' ' -f1 "$list")
