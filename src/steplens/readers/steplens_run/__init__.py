"""What steplens recorded: its run directories, with what lies beside Kineto's trace."""
