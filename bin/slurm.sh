#!/usr/bin/env bash
#SBATCH --job-name=stageb
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#
# sbatch [--nodes N ...] bin/slurm.sh --config FILE [--KEY VALUE ...]
#
# `stageb fit` on several machines, a task for every GPU. Submit it from the checkout, after bin/setup has installed it there
# once (any of bin/* does). A job that was preempted or ran out of time goes on from its last commit: submit it again.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?submit it: sbatch bin/slurm.sh --config FILE}"
exec srun --kill-on-bad-exit=1 .venv/bin/python bin/fit.py "$@"
