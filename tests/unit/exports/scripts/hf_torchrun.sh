#!/bin/bash
export WANDB_PROJECT=sft
NUM_GPUS=8
torchrun --nproc_per_node=${NUM_GPUS} run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 --gradient_checkpointing \
    --torch_compile --optim adamw_bnb_8bit --use_liger_kernel --learning_rate 2e-5 --output_dir out
