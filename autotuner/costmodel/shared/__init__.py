"""The modules that every part of the cost model uses: tables, stages, micro-batches, sequences and low precision."""
