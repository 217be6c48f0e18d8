#!/bin/bash
# What a subshell sets is lost behind it.
TP=2
(
    TP=8
    cd /opt/Megatron-LM && make
)
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size $TP --micro-batch-size 4 --global-batch-size 64 --bf16
