"""What happens to an account when an order meets a bar."""
