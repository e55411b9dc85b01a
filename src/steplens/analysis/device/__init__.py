"""What devices do: tasks, idle time, launches and queues, use of the cores."""
