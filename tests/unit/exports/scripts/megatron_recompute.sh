#!/bin/bash
MODE=full
if [ "$MODE" = "full" ]; then
    RECOMPUTE="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
elif [ "$MODE" = "selective" ]; then
    RECOMPUTE="--recompute-activations"
else
    RECOMPUTE=
fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 2 $RECOMPUTE --micro-batch-size 2 --global-batch-size 32 --bf16
