#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
set -euo pipefail
module load cuda
srun --output=log_%j.txt sh -c "python -u pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 8 \
  --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 256 --bf16"
