"""Why a layout takes what it takes: what limits it, what lies one step away, what measured pairs show."""
