"""Data volumes (CDI): the controllers' decisions, the API's admission and the worker programs that move
bytes.
"""
