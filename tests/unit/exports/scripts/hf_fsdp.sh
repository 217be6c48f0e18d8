#!/bin/bash
FSDP="full_shard auto_wrap"
torchrun --nproc_per_node 8 --nnodes 2 train.py --per_device_train_batch_size 1 --bf16 True --fsdp "$FSDP" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer
