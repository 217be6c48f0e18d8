#!/bin/bash
# Long sequences on DeepSpeed-Ulysses: the heads of each layer are dealt to the ranks that share a sequence.
SEQ_LEN=32768
SEQUENCE_RANKS=4

deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py \
    --ds-sequence-parallel-size $SEQUENCE_RANKS \
    --deepspeed --deepspeed_config ds_config.json --zero-stage 1 --no-pipeline-parallel \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length $SEQ_LEN --max-position-embeddings $SEQ_LEN \
    --micro-batch-size 1 --global-batch-size 8 \
    --use-flash-attn-v2 --bf16
