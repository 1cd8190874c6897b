from workers.launch import launch

if __name__ == "__main__":
    launch("workers.events.handlers:app")
