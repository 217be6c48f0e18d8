"""What trainers print of their steps, read line by line: a reader per trainer, in the shapes that their releases print.

Any line may be handed to any reader: what it does not know says nothing, and no line makes it raise.
"""
