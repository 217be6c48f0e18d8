#!/bin/bash
# Tests that decide assignments in one line; none of the variables is set.
TP=4
EXTRA="--sequence-parallel"
[ -n "$BIG_MODEL" ] && TP=8
[[ "$NO_SP" == "1" ]] && EXTRA=
[ "$DEBUG" ] || BATCH=64
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size $TP $EXTRA \
    --micro-batch-size 1 --global-batch-size $BATCH --bf16
