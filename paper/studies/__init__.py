"""Our own studies, as experiments like the paper's."""
