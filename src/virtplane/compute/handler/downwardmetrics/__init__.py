"""What a guest is told of its node and of itself: downward metrics."""
