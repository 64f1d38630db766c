"""``batch``: Jobs and CronJobs."""
