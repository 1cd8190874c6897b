"""The state scraper: ten workers collect the listings of a business directory, each from its own states."""
