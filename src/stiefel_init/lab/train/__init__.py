"""Training many networks at once: cells, tasks, stacks, engines, records. The README beside this file has the map."""
