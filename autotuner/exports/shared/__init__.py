"""The modules that every trainer's configuration uses: keys, targets, texts, commands, scripts and common rules."""
