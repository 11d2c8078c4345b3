"""The `distmon` command: one file per verb, imported only when it is called."""
