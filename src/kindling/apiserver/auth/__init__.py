"""Authentication, impersonation, authorization, and the review APIs of both."""
