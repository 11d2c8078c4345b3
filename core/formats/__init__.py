"""Text that other programs print, as typed data. Pure: a line in, a structure or a refusal out."""
