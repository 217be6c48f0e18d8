#! /bin/bash
# Flags in strings over several lines, unquoted at the end.
TP=2; PP=4
OPTIONS=" \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 \
    --micro-batch-size 1 --global-batch-size 64 --fp16"
DISTRIBUTED="--nproc_per_node 8 --nnodes 1"
python -m torch.distributed.run $DISTRIBUTED pretrain_gpt.py $OPTIONS --save /ckpt
