"""Time of single kernels: matrix products, attention cores, memory traffic, launches."""
