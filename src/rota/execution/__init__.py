"""What executes the attempts of a node: process boundaries, workers and programs."""
