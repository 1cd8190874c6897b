"""The document's integration test, unchanged. It needs a server on port 8000 and the video API: see the README."""
# mypy: ignore-errors

# fmt: off
import unittest

import requests

from worker import SEARCH_PARAMS, Worker

Worker.task_types = {"test.task": SEARCH_PARAMS}  # the type of this test, not those of the worker


class TestWorkerIntegration(unittest.TestCase):
    """Integration tests for worker."""

    @classmethod
    def setUpClass(cls):
        """Setup test environment."""
        cls.api_url = 'http://localhost:8000/api'
        cls.worker = Worker(api_url=cls.api_url, worker_id='test')

    def test_health_check(self):
        """Test API health check."""
        healthy = self.worker.health_check()
        self.assertTrue(healthy)

    def test_full_task_lifecycle(self):
        """Test complete task lifecycle."""
        # Create task
        response = requests.post(
            f'{self.api_url}/tasks',
            json={
                'type': 'test.task',
                'params': {'search_query': 'test'}
            }
        )
        task_id = response.json()['id']

        # Claim task
        task = self.worker.claim_task()
        self.assertEqual(task['id'], task_id)

        # Process task
        result = self.worker.process_task(task)
        self.assertTrue(result['success'])

        # Complete task
        completed = self.worker.complete_task(task_id, result)
        self.assertTrue(completed)
