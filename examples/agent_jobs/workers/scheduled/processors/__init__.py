"""What the jobs do, without when and how often."""
