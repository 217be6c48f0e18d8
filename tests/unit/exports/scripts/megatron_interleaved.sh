#!/usr/bin/env bash
PP=4
VIRTUAL=${VIRTUAL:-2}
if (( VIRTUAL > 1 )); then
    STAGES="--num-virtual-stages-per-pipeline-rank ${VIRTUAL}"
fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --pipeline-model-parallel-size $PP ${STAGES:-} --micro-batch-size 1 --global-batch-size 64 --bf16
