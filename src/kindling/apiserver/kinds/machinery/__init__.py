"""What the strategies, validation and tables of all kinds are written with."""
