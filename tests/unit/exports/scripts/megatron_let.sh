#!/bin/bash
# Arithmetic in three spellings.
NODES=4
let GPUS=NODES*8
((TP = GPUS / 8))
PP=$((NODES > 2 ? 2 : 1))
torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size $TP \
  --pipeline-model-parallel-size $PP --micro-batch-size 1 --global-batch-size $((GPUS * 4)) --bf16
