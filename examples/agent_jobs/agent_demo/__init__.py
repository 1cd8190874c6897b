"""The demonstration: starts everything, publishes events, and checks what is in the app core at the end."""
