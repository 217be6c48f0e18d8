#!/bin/bash
# A size chooses shapes and degrees.
SIZE=${SIZE:-13b}
case $SIZE in
    7b|8b) L=32; H=4096; A=32; TP=1; PP=1 ;;
    13b)   L=40; H=5120; A=40; TP=2; PP=2 ;;
    *)     echo "unknown size" >&2; exit 1 ;;
esac
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers $L --hidden-size $H --num-attention-heads $A \
  --seq-length 2048 --max-position-embeddings 2048 --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
  --micro-batch-size 1 --global-batch-size 32 --bf16
