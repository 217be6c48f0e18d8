"""Whether runs of one layout are slower than those of another: a test that asks for more runs until it knows."""
