"""The REST API: what others may read, and the job logs of those who share no storage."""
