"""Values that every loop's config checks where they enter."""

from __future__ import annotations

from typing import Any

import pytest

from stageb.engines.config import ModelConfig
from stageb.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "https://api.example.org",
        "http://[::1]:8000/v1/",
        "https://host/a/path",
    ],
)
def test_urls_of_servers(url: str) -> None:
    assert ModelConfig(base_url=url).base_url == url


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_url", "localhost:8000/v1"),
        ("base_url", "file:///etc/passwd"),
        ("base_url", "http://"),
        ("base_url", ""),
        ("base_url", "http://[::1/v1"),
        ("base_url", "http://host:port/v1"),
        ("base_url", "http://host/v1?key=1"),
        ("base_url", "http://host/v1#a"),
        ("concurrency", 0),
        ("concurrency", 5000),
        ("timeout_s", 0.0),
        ("timeout_s", 1e9),
    ],
)
def test_values_that_cannot_be(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**{key: value})
    assert (caught.value.key, caught.value.value) == (f"model.{key}", value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api_key_env", "sk-abc123"),
        ("api_key_env", "$MY_KEY"),
        ("api_key_env", ""),
        ("base_url", "https://me:sk-abc123@host/v1"),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"model.{key}") as caught:
        ModelConfig(**{key: value})  # type: ignore[arg-type]
    assert "abc123" not in str(caught.value)
