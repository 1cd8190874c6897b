"""What the workers do: the document's specialised processors. They know nothing of queues."""
