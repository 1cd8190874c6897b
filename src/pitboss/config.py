"""Settings: command line > environment > file > default. The only reader of the environment."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What a process can be told from outside; every name is `PITBOSS_…` in the environment."""

    model_config = SettingsConfigDict(env_prefix="PITBOSS_", frozen=True, extra="ignore")

    store: str = "sqlite:///pitboss.db"


def load(**given: object) -> Settings:
    """The settings, where what is given (and not None) wins."""
    return Settings.model_validate({**Settings().model_dump(), **{k: v for k, v in given.items() if v is not None}})
