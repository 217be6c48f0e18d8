"""Pictures: figures made in Python as SVG that style sheets colour, so that they need no script and bear dark mode."""
