"""What only PostgreSQL can do in one statement. A test holds each of these to the plain function of `transactions/`."""
