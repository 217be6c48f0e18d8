"""What commands print, for a terminal of 80 columns or more."""
