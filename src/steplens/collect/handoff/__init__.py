"""What happens to a window that was recorded: its handler, its analysis, its way to another disk, the end of the process."""
