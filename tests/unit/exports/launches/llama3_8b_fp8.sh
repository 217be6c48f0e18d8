#!/bin/bash
# Settings of NVIDIA/Megatron-LM core_v0.19.0, examples/llama/train_llama3_8b_h100_fp8.sh.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
SAVE=${1:-"checkpoints/llama3_8b"}
DATA=${2:-"MOCK"}
GPUS_PER_NODE=8
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP_SIZE=1
CP_SIZE=1
GLOBAL_BATCH_SIZE=128
DTYPE="fp8"
SEQ_LENGTH=8192

SHAPE=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length $SEQ_LENGTH
    --max-position-embeddings $SEQ_LENGTH
    --position-embedding-type rope
    --swiglu
    --normalization RMSNorm
    --attention-backend fused
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
TRAINING=(
    --micro-batch-size 1
    --global-batch-size $GLOBAL_BATCH_SIZE
    --lr 0.00015
    --decoupled-lr 5.0e-4 # of the embeddings
    --clip-grad 1.0
    --bf16
    --grad-reduce-in-bf16
    --cross-entropy-loss-fusion
)
CASTS=()
if [[ "$DTYPE" == "fp8" ]]; then
    CASTS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-amax-compute-algo max"
        "--fp8-param-gather"
    )
fi
PARALLEL=(
    --tensor-model-parallel-size $TP_SIZE
    --context-parallel-size $CP_SIZE
    # --pipeline-model-parallel-size 2
    --sequence-parallel # whatever TP_SIZE is
)
TRAINING+=("${PARALLEL[@]}" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES \
    pretrain_gpt.py ${SHAPE[@]} ${TRAINING[@]} ${CASTS[@]} \
    --mock-data --vocab-size 128256 --save "$SAVE"
