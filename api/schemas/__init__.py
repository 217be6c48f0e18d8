"""What travels over REST, as dataclasses that ``documents`` reads, writes and describes.

A number that the cost model predicts stands under ``predicted``, one that a trial measured under ``measured``;
no object mixes the two.
"""
