#!/bin/bash
# Settings of NVIDIA/Megatron-LM core_v0.19.0, examples/mixtral/train_mixtral_8x7b_distributed.sh.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"1"}
SHAPE=(
    --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --normalization RMSNorm --position-embedding-type rope --swiglu
    --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8
    --no-masked-softmax-fusion
)
EXPERTS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
    --overlap-grad-reduce
)
PARALLEL=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8
    --use-distributed-optimizer
    --sequence-parallel
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    ${SHAPE[@]} ${EXPERTS[@]} ${PARALLEL[@]} \
    --micro-batch-size 1 --global-batch-size 256 --bf16 --lr 1e-4 \
    --tokenizer-type Llama2Tokenizer --tokenizer-model tokenizer.model --data-path $1
