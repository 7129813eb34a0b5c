"""The laboratory: data, networks, training, records and the command line."""
