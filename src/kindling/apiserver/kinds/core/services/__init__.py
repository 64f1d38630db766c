"""Services, and the cluster addresses and node ports which they get."""
