"""Loops wait, read, call one core function and commit. They hold no policy."""
