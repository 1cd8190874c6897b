"""The demonstration: a web site on loopback, the pipeline, and checks of what it made."""
