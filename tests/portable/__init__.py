"""Rota without Linux: in processes that lack what macOS lacks, with /proc and the control groups hidden."""
