"""The compared dashboards: one module for each, and the programs that fill their stores."""
