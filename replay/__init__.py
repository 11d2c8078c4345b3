"""How events are kept and told: session files, import, export, reports."""
