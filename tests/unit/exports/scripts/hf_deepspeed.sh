#!/bin/bash
STAGE=3
OUT=$1
if [ "$OUT" == "" ]; then
    OUT=./output
fi
deepspeed --num_gpus 8 main.py --zero_stage $STAGE --deepspeed --per_device_train_batch_size 4 --gradient_checkpointing --dtype bf16 --output_dir $OUT
