"""The launcher's pod as virt-handler sees it from outside: its process, its control socket, its devices."""
