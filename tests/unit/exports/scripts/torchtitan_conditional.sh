#!/bin/bash
DEGREE=1
[[ ${ASYNC_TP:-0} -eq 1 ]] && DEGREE=8
PIPELINE=2
ARGS="--parallelism.tensor_parallel_degree=$DEGREE"
if [[ $PIPELINE -gt 1 ]]; then ARGS+=" --parallelism.pipeline_parallel_degree=$PIPELINE"; fi
torchrun --nproc_per_node=8 -m torchtitan.train --model.name llama3 --model.flavor 8B $ARGS --training.local_batch_size=4
