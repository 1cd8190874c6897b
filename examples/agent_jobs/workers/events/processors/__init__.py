"""What the handlers do, without which event it is for."""
