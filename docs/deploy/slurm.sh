#!/bin/bash
#SBATCH --job-name=gradloom-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append
# Three minutes before the limit every task gets SIGUSR1: the run saves and exits with 138, and the job is queued again. --resume auto then
# goes on from there. Keep --out on a file system that all nodes see.
set -uo pipefail

# Since Slurm 22.05 srun does not take over --cpus-per-task, and a task would get one core.
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" gradloom train model.onnx --data train.csv --eval-split 10% --name exp1 --out runs --resume auto \
  --save-every 10min --log-format json --metrics-port 9100 --metrics-address 0.0.0.0
code=$?

# 138: stopped and saved; 140: another process was lost. Anything else ends the job with its code.
if [ "$code" = 138 ] || [ "$code" = 140 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
