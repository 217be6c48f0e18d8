#!/bin/bash
# Settings of NVIDIA/Megatron-LM core_v0.19.0, examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh.
GPUS_PER_NODE=8
USE_MEGATRON_FSDP=${USE_MEGATRON_FSDP:-1}
STRATEGY=${STRATEGY:-"optim_grads_params"}
SHAPE=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope
    --swiglu --normalization RMSNorm --attention-backend fused
    --untie-embeddings-and-output-weights --disable-bias-linear
)
TRAINING=(
    --micro-batch-size 1
    --global-batch-size 128
    --bf16
    --fp8-format hybrid
    --fp8-param-gather
)
if [ "${USE_MEGATRON_FSDP}" = 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    TRAINING=(
        "${TRAINING[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${STRATEGY}
        --no-gradient-accumulation-fusion
        --use-nccl-ub
        --fsdp-double-buffer
        --fsdp-manual-registration
        --ckpt-format fsdp_dtensor
        # --num-distributed-optimizer-instances 2
    )
fi
TRAINING+=(--sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
python -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py \
    ${SHAPE[@]} ${TRAINING[@]} --mock-data --vocab-size 128256
