#!/bin/bash
STAGE=2
cat > ds.json <<EOT
{
  "train_micro_batch_size_per_gpu": 2,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": $STAGE}
}
EOT
deepspeed --num_gpus 4 train.py --deepspeed_config ds.json
