"""What the demonstration needs around the worker: a stand-in for the video API, and an audit of what it saw."""
