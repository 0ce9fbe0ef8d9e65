"""What each queue's task does with an attempt."""
