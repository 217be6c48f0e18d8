#!/bin/bash
ZERO_STAGE=1
ds_args="--deepspeed --deepspeed_config ds.json"
ds_args=" --zero-stage=$ZERO_STAGE ${ds_args}"
[ $ZERO_STAGE -ge 2 ] && ds_args="--no-pipeline-parallel ${ds_args}"
deepspeed --num_gpus 8 --num_nodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 32 --bf16 $ds_args
