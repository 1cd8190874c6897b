"""The command line: thin commands over the store. Start-up is kept fast: what is heavy is imported where it is used."""
