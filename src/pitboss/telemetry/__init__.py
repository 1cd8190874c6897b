"""Logs for now; metrics, traces and alerts later. It only reports, and changes nothing."""
