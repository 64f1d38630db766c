"""Who is asking, and may they: authentication, impersonation, authorization and the reviews about both."""
