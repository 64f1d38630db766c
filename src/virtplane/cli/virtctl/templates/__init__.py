"""``template``: VirtualMachineTemplates, filled in here."""
