"""One small module per system, all with the face of `base.Peer`; each runs in an environment of its own."""
