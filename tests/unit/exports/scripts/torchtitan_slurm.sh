#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=4
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_endpoint "$head_node:29500" -m torchtitan.train \
    --model.name llama3 --model.flavor 70B --parallelism.tensor_parallel_degree 8 --training.local_batch_size 1
