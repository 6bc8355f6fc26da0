"""What a node serves over HTTP. It only translates to `control`."""
