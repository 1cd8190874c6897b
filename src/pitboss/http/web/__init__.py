"""The dashboard at /ui: pages for people, made on the server, by the same process as the API."""
