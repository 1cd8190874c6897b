"""A stand-in for the outside world: a site with stories, and forward proxies that lead to it. Loopback only."""
