"""What a sweep decides by: its study, its gates, its challenge, and when it is over."""
