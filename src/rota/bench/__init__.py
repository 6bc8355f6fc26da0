"""Benchmarks of the product on real stores. They measure and judge; they decide nothing."""
