#!/bin/bash
# A checkpoint adds arguments, if there is one.
ARGS=(--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 --bf16)
if [ -d "$CKPT/latest" ]; then
    ARGS+=(--load $CKPT/latest)
else
    echo "from scratch"
fi
torchrun --nproc_per_node 8 pretrain_gpt.py "${ARGS[@]}"
