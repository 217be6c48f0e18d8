#!/bin/bash
# Settings of deepspeedai/DeepSpeedExamples, applications/DeepSpeed-Chat, training/step1_supervised_finetuning,
# training_scripts/llama2/run_llama2_7b.sh.
OUTPUT=$1
ZERO_STAGE=$2
if [ "$OUTPUT" == "" ]; then
    OUTPUT=./output
fi
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
mkdir -p $OUTPUT
deepspeed main.py \
   --model_name_or_path meta-llama/Llama-2-7b-hf \
   --per_device_train_batch_size 4 \
   --max_seq_len 512 \
   --learning_rate 9.65e-6 \
   --gradient_accumulation_steps 1 \
   --gradient_checkpointing \
   --zero_stage $ZERO_STAGE \
   --deepspeed \
   --output_dir $OUTPUT
