"""One suite for every store: what the port promises, each store keeps."""
