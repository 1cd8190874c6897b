"""Stands in for the outside world: a site with stories, and forward proxies to reach it by. Loopback only."""
