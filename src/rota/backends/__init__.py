"""Stores behind the ports. They keep what they are told to keep and decide nothing."""
