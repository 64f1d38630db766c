"""Consoles, displays and the other streams of guests, served to virt-api."""
