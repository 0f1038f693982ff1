"""A setting that cannot work is refused with its path; the defaults can."""

import math
from typing import Any

import msgspec
import pytest

from chronos_runtime.config import Config
from chronos_runtime.errors import ConfigError

SECTIONS = {
    name: getattr(Config(), name)
    for name in Config.__struct_fields__
    if isinstance(getattr(Config(), name), msgspec.Struct)
}
FIELDS = [
    (section, field, getattr(value, field))
    for section, value in SECTIONS.items()
    for field in value.__struct_fields__
]
SECONDS = [(section, field) for section, field, value in FIELDS if isinstance(value, float)]
COUNTS = [(section, field) for section, field, value in FIELDS if type(value) is int]
EMAIL_REST = [
    "host",
    "tls",
    "ca_file",
    "username",
    "password",
    "sender",
    "domain",
    "attachments_dir",
    "ports",
    "allow",
]
SMS_REST = [
    "url",
    "method",
    "format",
    "body",
    "headers",
    "username",
    "password",
    "secrets",
    "idempotency_header",
    "sender",
    "success",
    "permanent",
    "id_path",
    "status_path",
    "status_success",
    "status_permanent",
    "ports",
    "allow",
]
SWITCHES = [(section, field) for section, field, value in FIELDS if isinstance(value, bool)]


def refusal(tree: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.of(tree, **options)
    return str(caught.value)


def defaults() -> Any:
    return msgspec.to_builtins(Config())


def test_the_defaults_meet_their_own_constraints() -> None:
    assert Config.of({}) == Config()
    assert Config.of(defaults()) == Config()
    Config().check()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_may_be_there_and_empty(section: str) -> None:
    assert Config.of({section: {}}) == Config()


def test_every_kind_of_setting_is_tested_below() -> None:
    rest = {
        (section, field)
        for section, field, _ in FIELDS
        if (section, field) not in {*SECONDS, *COUNTS, *SWITCHES}
    }
    assert rest == {
        ("database", "dsn"),
        ("database", "data_dir"),
        ("executor", "topic_concurrency"),
        ("exporter", "host"),
        ("wake", "allow"),  # In tests/processors/test_egress.py.
        ("wake", "ports"),
        ("wake", "secrets"),
        *(("email", field) for field in EMAIL_REST),  # In tests/processors/test_email.py.
        *(("sms", field) for field in SMS_REST),  # In tests/processors/test_sms.py.
    }


@pytest.mark.parametrize(("section", "field"), SECONDS, ids=".".join)
def test_seconds_are_positive_and_no_longer_than_a_day(section: str, field: str) -> None:
    path = f"{section}.{field}: "
    wrongs: list[object] = [-1, -0.5, 86_401, math.nan, math.inf, "10", None, True]
    if (section, field) != ("executor", "drain_s"):  # A drain may be given no time at all.
        wrongs.append(0)
    for wrong in wrongs:
        assert refusal({section: {field: wrong}}).startswith(path), wrong


@pytest.mark.parametrize(("section", "field"), COUNTS, ids=".".join)
def test_counts_are_whole_and_at_least_one(section: str, field: str) -> None:
    path = f"{section}.{field}: "
    wrongs: list[object] = [-1, 1_000_001, 1.5, "10", None, True]
    if (section, field) != ("exporter", "port"):  # Port 0: any free one.
        wrongs.append(0)
    for wrong in wrongs:
        assert refusal({section: {field: wrong}}).startswith(path), wrong


@pytest.mark.parametrize(("section", "field"), SWITCHES, ids=".".join)
def test_switches_are_on_or_off(section: str, field: str) -> None:
    for wrong in (0, 1, "true", None):
        assert refusal({section: {field: wrong}}).startswith(f"{section}.{field}: ")
    for right in (True, False):
        config = Config.of({section: {field: right}})
        assert getattr(getattr(config, section), field) is right


def test_a_port_is_one_of_65536() -> None:
    assert Config.of({"exporter": {"port": 0}}).exporter.port == 0
    assert Config.of({"exporter": {"port": 65_535}}).exporter.port == 65_535
    assert refusal({"exporter": {"port": 65_536}}).startswith("exporter.port: ")


def test_a_limit_per_topic_is_a_count() -> None:
    for wrong in (0, -1, "5", 1.5):
        text = refusal({"executor": {"topic_concurrency": {"mail": wrong}}})
        assert text.startswith("executor.topic_concurrency")


@pytest.mark.parametrize("topic", ["*", "", " ", "a\nb"], ids=ascii)
def test_a_topic_that_no_job_can_have_is_refused(topic: str) -> None:
    assert refusal({"topics": ["mail", topic]}).startswith("topics: ")
    text = refusal({"executor": {"topic_concurrency": {topic: 5}}})
    assert text.startswith("executor.topic_concurrency: ")


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"executor": {"concurency": 5}}, "executor: "),
        ({"executors": {}}, "config: "),
        ({"executor": 5}, "executor: "),
        ({"topics": "mail"}, "topics: "),
        ({"topics": [7]}, "topics[0]: "),
        ([], "config: "),
        (None, "config: "),
    ],
    ids=str,
)
def test_what_is_not_a_setting_is_refused_by_its_path(tree: Any, path: str) -> None:
    assert refusal(tree).startswith(path)


def test_an_unknown_key_is_named() -> None:
    assert "`concurency`" in refusal({"executor": {"concurency": 5}})


@pytest.mark.parametrize("section", SECTIONS)
def test_no_section_takes_a_key_it_does_not_know(section: str) -> None:
    assert "`nonsense`" in refusal({section: {"nonsense": 1}})


@pytest.mark.parametrize(("lease_s", "interval_s"), [(30.0, 10.1), (29.9, 10.0), (1.0, 1.0)])
def test_a_lease_without_room_for_three_beats_is_refused_with_the_fix(
    lease_s: float, interval_s: float
) -> None:
    text = refusal({"heartbeater": {"lease_s": lease_s, "interval_s": interval_s}})
    assert text.startswith("heartbeater.interval_s: ")
    assert f"make it at most {lease_s / 3:g}" in text


@pytest.mark.parametrize(("lease_s", "interval_s"), [(30.0, 10.0), (3.0, 1.0), (90.0, 30.0)])
def test_a_lease_of_three_beats_is_enough(lease_s: float, interval_s: float) -> None:
    Config.of({"heartbeater": {"lease_s": lease_s, "interval_s": interval_s}})


def test_an_idle_claimer_does_not_poll_more_often_than_a_busy_one() -> None:
    text = refusal({"claimer": {"poll_s": 5.0, "idle_poll_s": 1.0}})
    assert text.startswith("claimer.idle_poll_s: ")
    Config.of({"claimer": {"poll_s": 5.0, "idle_poll_s": 5.0}})


@pytest.mark.parametrize(
    ("secrets", "trouble"),
    [
        ({"billing": "whsec_c2VjcmV0LWNhbmFyeQ=="}, "env:NAME or file:/path"),
        ({"billing": ["env:NEW", "whsec_c2VjcmV0LWNhbmFyeQ=="]}, "env:NAME or file:/path"),
        ({"billing": "env:"}, "env:NAME or file:/path"),
        ({"billing": "env:CHRONOS_BILLING"}, "rename it"),
        ({"billing": []}, "has no secret"),
        ({"billing": 7}, "Expected `str | array`"),
    ],
)
def test_a_secret_is_named_by_its_place_and_never_repeated(secrets: Any, trouble: str) -> None:
    text = refusal({"wake": {"secrets": secrets}})
    assert text.startswith("wake.secrets")
    assert trouble in text
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize(
    ("section", "settings", "trouble"),
    [
        ("email", {"password": "canary"}, "email.password: must be env:NAME or file:/path"),
        ("email", {"password": "env:CHRONOS_X", "username": "a"}, "email.password: CHRONOS_X"),
        ("email", {"password": "env:X"}, "email.username: goes with"),
        ("email", {"username": "a"}, "email.username: goes with"),
        (
            "email",
            {"host": "relay", "tls": "none", "username": "a", "password": "env:X"},
            "email.tls: ",
        ),
        ("email", {"tls": "ssl"}, "email.tls: "),
        ("sms", {"password": "canary"}, "sms.password: must be env:NAME or file:/path"),
        ("sms", {"secrets": {"token": "canary"}}, "sms.secrets: 'token': must be env:NAME"),
        ("sms", {"secrets": {"token": ""}}, "sms.secrets: 'token': must be env:NAME"),
        ("sms", {"username": "a"}, "sms.username: goes with"),
        ("sms", {"headers": {"Authorization": "Bearer canary"}}, "sms.headers: 'Authorization' is"),
        ("sms", {"headers": {"X-Api-Key": "canary"}}, "sms.headers: 'X-Api-Key' is written out"),
        ("sms", {"body": {"api_secret": "canary"}}, "sms.body: 'api_secret' is written out"),
        ("sms", {"body": {"login": {"token": "canary"}}}, "sms.body: 'token' is written out"),
        ("sms", {"url": "https://example.org/?apikey=canary"}, "sms.url: 'apikey' is written out"),
        ("sms", {"method": "get"}, "sms.method: "),
        ("sms", {"status_path": "status"}, "sms.status_path: goes with"),
    ],
    ids=str,
)
def test_secrets_of_processors_are_references_and_never_repeated(
    section: str, settings: Any, trouble: str
) -> None:
    text = refusal({section: settings})
    assert text.startswith(trouble)
    assert "canary" not in text


def test_what_only_sounds_like_a_secret_may_be_written_where_a_value_stands_for_it() -> None:
    for name in ("Authorization", "X-Api-Key", "idempotency-key"):
        Config.of({"sms": {"headers": {name: "Bearer {secret.token}"}}})
    Config.of({"sms": {"headers": {"Idempotency-Key": "{id}"}, "url": "https://example.org/?v=1"}})


@pytest.mark.parametrize("port", [0, -1, 65_536, "443", None])
def test_a_port_is_one(port: Any) -> None:
    assert refusal({"wake": {"ports": [443, port]}}).startswith("wake.ports[")


def test_settings_that_are_all_text_are_read_as_what_they_mean() -> None:
    tree: dict[str, Any] = {"topics": ["mail"]}
    for section, field, value in FIELDS:
        text = value if isinstance(value, dict | list) else str(value).lower()
        tree.setdefault(section, {})[field] = text
    assert Config.of(tree, is_text=True) == Config(topics=["mail"])


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"executor": {"concurrency": "many"}}, "executor.concurrency: "),
        ({"executor": {"concurrency": "7.5"}}, "executor.concurrency: "),
        ({"executor": {"concurrency": "0"}}, "executor.concurrency: "),
        ({"executor": {"concurrency": ""}}, "executor.concurrency: "),
        ({"heartbeater": {"lease_s": "nan"}}, "heartbeater.lease_s: "),
        ({"heartbeater": {"lease_s": "inf"}}, "heartbeater.lease_s: "),
        ({"heartbeater": {"lease_s": "3"}}, "heartbeater.interval_s: "),
        ({"listener": {"enabled": "perhaps"}}, "listener.enabled: "),
    ],
    ids=str,
)
def test_text_is_held_to_the_same_rules(tree: Any, path: str) -> None:
    assert refusal(tree, is_text=True).startswith(path)


def test_a_config_cannot_be_changed_under_the_actors() -> None:
    with pytest.raises(AttributeError):
        Config().database.dsn = "x"  # type: ignore[misc]
