"""What loads inside a training process. Standard library only; never blocks, never raises into user code."""
