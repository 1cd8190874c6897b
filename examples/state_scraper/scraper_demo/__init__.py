"""The demonstration: a stand-in directory site and forward proxies on loopback, a database, and checks."""
