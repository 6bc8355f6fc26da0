"""What happens in one transaction."""
