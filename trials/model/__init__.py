"""The decoder and the options inside its layers; which ranks there are is told to it, as parts and shares."""
