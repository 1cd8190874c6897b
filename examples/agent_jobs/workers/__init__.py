"""The workers of the agent: scheduled jobs, and handlers of events."""

import logging.config  # noqa: F401 – the document's example says `import logging` only
