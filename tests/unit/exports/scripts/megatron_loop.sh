#!/bin/bash
# A loop builds the data blend.
BLEND=""
for part in 1 2 3; do
    BLEND="$BLEND 1.0 /data/part_$part"
done
torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8 --bf16 --data-path $BLEND
