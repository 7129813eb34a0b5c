"""Which protocol made table 5: hypotheses, a likelihood over them, and what the published numbers say by themselves."""
