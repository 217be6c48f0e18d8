#!/bin/bash
# Functions that set degrees, with local helpers.
set_parallel() {
    local tensor=$1
    local pipeline=$2
    TP=$tensor
    PP=$pipeline
}
add() { ARGS+=("$@"); }
set_parallel 4 4
ARGS=()
add --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
add --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096
add --micro-batch-size 1 --global-batch-size 32 --bf16
launch() { torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py "${ARGS[@]}"; }
launch
