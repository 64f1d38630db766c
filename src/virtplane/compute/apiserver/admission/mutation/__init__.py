"""What is filled in when objects are created: pure functions that change a copy in place."""
