from workers.launch import launch

if __name__ == "__main__":
    launch("workers.scheduled.tasks:app")
