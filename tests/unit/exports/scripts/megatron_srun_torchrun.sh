#!/bin/bash
#SBATCH -N 2
#SBATCH --gpus-per-node h100:8
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --rdzv_endpoint $head_node:29500 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 \
  --context-parallel-size 2 --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --bf16
