"""``python -m autotuner.cli``: the command line without an installed script."""

from autotuner.cli.main import main

main()
