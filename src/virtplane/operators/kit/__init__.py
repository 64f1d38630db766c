"""What every operator is made of: objects applied, removed and reported on, roles and certificates."""
