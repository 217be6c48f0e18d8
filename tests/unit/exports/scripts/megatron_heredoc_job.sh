#!/bin/bash
# Writes its job to sbatch.
TP=4
sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=2
torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 32 --bf16
EOT
