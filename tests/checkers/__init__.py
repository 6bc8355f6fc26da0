"""Judges outside the product: a history in, a verdict out. Nothing here imports rota."""
