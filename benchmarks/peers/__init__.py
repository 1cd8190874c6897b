"""One small module per system. Each implements `base.Peer` and runs in its own environment."""
