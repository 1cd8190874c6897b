"""The story checker: profiles are checked for stories through proxies that may each be used only so often."""
