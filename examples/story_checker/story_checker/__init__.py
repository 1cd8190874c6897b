"""The story checker: checks profiles for stories, through proxies with limits."""
