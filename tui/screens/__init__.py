"""The screens: what is where, and what the keys do."""
