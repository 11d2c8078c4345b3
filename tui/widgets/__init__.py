"""Few, large widgets on Textual's line API; each draws plain data and knows nothing of jobs, files or sockets."""
