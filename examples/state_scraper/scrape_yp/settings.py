"""The settings: `.env` in the working folder, which the environment overrides. `.env.example` explains them."""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_FILE = Path(".env")
Strategy = Literal["round_robin", "least_recently_used", "least_loaded", "weighted"]


class Settings(BaseSettings):
    """Each field is a variable of the same name in capitals."""

    model_config = SettingsConfigDict(env_file=ENV_FILE, extra="ignore")

    database_url: str = "postgresql://washbot@localhost/washbot_db"
    site_url: str = "http://localhost:8080"

    worker_count: PositiveInt = 10
    min_delay_seconds: NonNegativeFloat = 8.0
    max_delay_seconds: NonNegativeFloat = 20.0
    max_targets_per_browser: PositiveInt = 100
    max_pages: PositiveInt = 3
    page_timeout_seconds: PositiveFloat = 30.0
    max_target_attempts: PositiveInt = 5
    retry_seconds: PositiveFloat = 30.0
    browser_path: Path | None = None

    proxy_file: Path = Path("data/webshare_proxies.txt")
    proxy_rotation_enabled: bool = True
    proxy_selection_strategy: Strategy = "round_robin"
    proxy_blacklist_threshold: PositiveInt = 10
    proxy_blacklist_duration_minutes: PositiveFloat = 60
    proxy_cooldown_minutes: PositiveFloat = 15
    proxy_rate: str = "50/h"
    proxies_per_worker: PositiveInt = 5
