"""What `pitboss init` writes."""
