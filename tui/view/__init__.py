"""From the state to what the widgets draw: words, rows and lines. Nothing here measures, and nothing here draws."""
