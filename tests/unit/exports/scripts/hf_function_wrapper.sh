#!/bin/bash
run() {
    local name=$1; shift
    echo "running $name"
    torchrun --nproc_per_node 4 train.py --run_name "$name" "$@"
}
run base --per_device_train_batch_size 8 --bf16 --output_dir "out/$1"
