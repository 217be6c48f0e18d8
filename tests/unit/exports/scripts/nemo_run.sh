#!/bin/bash
NODES=${NODES:-2}
OVERRIDES=(
    trainer.num_nodes=$NODES
    trainer.devices=8
    trainer.strategy.tensor_model_parallel_size=2
    trainer.strategy.sequence_parallel=true
    data.micro_batch_size=1
    data.global_batch_size=128
)
nemo llm pretrain --factory llama3_8b "${OVERRIDES[@]}"
