"""Settings: command line > environment > file > code > default. Only this package reads the environment.

The file is the nearest `pitboss.toml`, `pitboss.yaml`, or `pyproject.toml` with a `[tool.pitboss]` table, from the
working folder upward. Paths in it are relative to its folder. `code` is what a program passes to `App(...)` and
`app.pool(...)`.
"""

from pitboss.config.alerts import AlertSettings, alerts_spec
from pitboss.config.environment import ServiceManager, asks_for_traces, inherited, secret_keys, service_manager
from pitboss.config.http import HttpSettings, ServerSpec, is_loopback, server_spec
from pitboss.config.layers import Layer, flat, variable
from pitboss.config.loading import Loaded, key_file, load, loaded
from pitboss.config.pools import all_resource_rules, pools, resource_keys, resource_rules
from pitboss.config.queues import declared_queues, queue_settings
from pitboss.config.settings import DEFAULT_STORE, DefaultSettings, RetentionSettings, Settings
from pitboss.config.sources import SourceSettings, source_specs

__all__ = [
    "DEFAULT_STORE",
    "AlertSettings",
    "DefaultSettings",
    "HttpSettings",
    "Layer",
    "Loaded",
    "RetentionSettings",
    "ServerSpec",
    "ServiceManager",
    "Settings",
    "SourceSettings",
    "alerts_spec",
    "all_resource_rules",
    "asks_for_traces",
    "declared_queues",
    "flat",
    "inherited",
    "is_loopback",
    "key_file",
    "load",
    "loaded",
    "pools",
    "queue_settings",
    "resource_keys",
    "resource_rules",
    "secret_keys",
    "server_spec",
    "service_manager",
    "source_specs",
    "variable",
]
