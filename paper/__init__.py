"""The paper's tables and figures, and our studies: each an experiment that imports the library and is not part of it.

    stiefel-init reproduce NAME    runs one, in a clone of the repository
    python -m paper --help         what maintainers do with the records

A study of one's own is one file: CONTRIBUTING.md.
"""
