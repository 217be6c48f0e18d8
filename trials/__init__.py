"""The torch.distributed job that a sweep launches to try one layout."""
