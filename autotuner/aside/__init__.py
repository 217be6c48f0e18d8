"""Computations beside the service: in processes that can be ended, each with its time and its memory."""
