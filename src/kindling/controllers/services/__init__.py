"""Controllers of Services: their endpoints, and addresses of load balancers."""
