#!/bin/bash
NODES=8
DEVICES=8
TP=4
python /opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py \
    trainer.num_nodes=${NODES} trainer.devices=${DEVICES} trainer.precision=bf16 \
    ++trainer.strategy.find_unused=false \
    model.tensor_model_parallel_size=${TP} model.pipeline_model_parallel_size=2 \
    model.micro_batch_size=1 model.global_batch_size=256 \
    model.activations_checkpoint_granularity=full model.activations_checkpoint_method=uniform
