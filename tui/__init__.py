"""The Textual app and the distmon command line: draws the state; owns nothing else."""
