"""Data volumes from real servers, which end with the last of these tests."""
