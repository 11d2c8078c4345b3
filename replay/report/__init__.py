"""Tables, plots and JSON made from the folded state of a session."""
