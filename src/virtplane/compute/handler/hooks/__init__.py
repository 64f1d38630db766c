"""Those who have a say in a guest's domain and life: hook sidecars and plugins."""
