"""Where on the job's clock each attempt lies: begin, interruption, detection, end."""
