#!/bin/bash
#SBATCH --nodes=4
TP=2
read -r -d '' cmd <<EOF
echo "starting"
EOF
CMD="python train.py trainer.strategy.tensor_model_parallel_size=${TP} trainer.num_nodes=4 trainer.devices=8 data.global_batch_size=64 data.micro_batch_size=1"
srun bash -c "${CMD}"
