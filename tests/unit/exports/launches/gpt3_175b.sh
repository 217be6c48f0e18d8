#!/bin/bash
# Settings of NVIDIA/Megatron-LM core_v0.19.0, examples/gpt3/train_gpt3_175b_distributed.sh.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=1 # change for more
CHECKPOINT_PATH=$1
DATA_PATH=$2

LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
SHAPE=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # or flash, fused, unfused, local
)
TRAINING=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --fp16
    --lr 6.0e-5
    --clip-grad 1.0
)
PARALLEL=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${SHAPE[@]} \
    ${TRAINING[@]} \
    ${PARALLEL[@]} \
    --data-path $DATA_PATH --save $CHECKPOINT_PATH
