"""Starts jobs and turns what happens to them into events."""
