"""``virtctl``, standalone and as ``kubectl virt``."""
