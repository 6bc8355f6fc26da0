"""The command line. It translates: words to `rota.control`, answers to tables or JSON, errors to exit codes."""
