"""The Pod Security Standards: ``checks`` are the rules, ``levels`` combines them, ``plugin`` admits."""
