"""What happens, the state it folds into, and the measures. Pure: no I/O, no clock, no threads."""
