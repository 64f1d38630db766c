"""Reading and checking API objects: metadata, quantities, selectors, names, times. Pure, no I/O."""
