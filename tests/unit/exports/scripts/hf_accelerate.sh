#!/bin/bash
LAUNCHER="accelerate launch --num_processes 8 --use_fsdp --mixed_precision bf16"
PROGRAM="train.py --per_device_train_batch_size 2 --torch_compile --optim adamw_bnb_8bit --use_liger_kernel"
CMD="$LAUNCHER $PROGRAM"
srun $CMD
