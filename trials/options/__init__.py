"""Options inside the decoder's layers: recomputation, offload, fp8, compilation."""
