"""What ``ModelPublishOperator`` is made of."""
