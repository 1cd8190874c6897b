"""What people ask and do, whatever the face: command line, HTTP, dashboard. Prints nothing; time is passed in."""
