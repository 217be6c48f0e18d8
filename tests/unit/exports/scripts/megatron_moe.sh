#!/bin/bash
MOE=(--num-experts 8 --expert-model-parallel-size 4 --moe-router-topk 2)
FLAGS=(--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 "${MOE[@]}")
FLAGS+=(--micro-batch-size 1)
FLAGS+=(--global-batch-size 64 --bf16 --use-distributed-optimizer)
exec torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py "${FLAGS[@]}"
