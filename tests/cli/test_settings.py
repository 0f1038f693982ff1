"""Settings come from four places, know which, and are refused when nobody knows them."""

from pathlib import Path

import pytest

from chronos_runtime.cli.settings import Settings, load_settings, mask_dsn
from chronos_runtime.errors import ConfigError
from tests.cli.program import Cli

SECRET = "hunter2"


def written(text: str) -> Path:
    file = Path("settings.toml")
    file.write_text(text, encoding="utf-8")
    return file


def source_of(settings: Settings, key: str) -> str:
    return next(source for name, _, source in settings.walk() if name == key)


def test_flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults() -> None:
    file = written(
        "topics = ['file']\n[executor]\nconcurrency = 1\ndrain_s = 1\n[exporter]\nport = 1"
    )
    environ = {"CHRONOS_EXECUTOR__CONCURRENCY": "2", "CHRONOS_EXECUTOR__DRAIN_S": "2"}
    settings = load_settings({"executor.concurrency": 3}, file, environ)
    config = settings.config
    assert config.executor.concurrency == 3
    assert config.executor.drain_s == 2
    assert config.exporter.port == 1
    assert config.topics == ["file"]
    assert config.heartbeater.lease_s == 30
    assert source_of(settings, "executor.concurrency") == "--concurrency"
    assert source_of(settings, "executor.drain_s") == "CHRONOS_EXECUTOR__DRAIN_S"
    assert source_of(settings, "exporter.port") == "settings.toml"
    assert source_of(settings, "heartbeater.lease_s") == "default"


def test_chronos_toml_is_read_where_it_lies() -> None:
    Path("chronos.toml").write_text("[executor]\nconcurrency = 7", encoding="utf-8")
    assert load_settings({}, None, {}).config.executor.concurrency == 7


def test_text_becomes_lists_tables_numbers_and_booleans() -> None:
    config = load_settings(
        {"topics": "mail, sms"},
        None,
        {
            "CHRONOS_EXECUTOR__TOPIC_CONCURRENCY": "mail=3, sms=2",
            "CHRONOS_DATABASE__PGBOUNCER": "true",
            "CHRONOS_CLAIMER__POLL_S": "0.25",
        },
    ).config
    assert config.topics == ["mail", "sms"]
    assert config.executor.topic_concurrency == {"mail": 3, "sms": 2}
    assert config.database.pgbouncer is True
    assert config.claimer.poll_s == 0.25


def test_dsn_has_a_short_name() -> None:
    settings = load_settings({}, None, {"CHRONOS_DSN": "postgresql://db/app"})
    assert settings.config.database.dsn == "postgresql://db/app"
    assert source_of(settings, "database.dsn") == "CHRONOS_DSN"


def test_an_empty_variable_was_not_given() -> None:
    file = written("[database]\ndsn = 'postgresql://db/app'")
    assert load_settings({}, file, {"CHRONOS_DSN": ""}).config.database.dsn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[executor]\nconcurency = 1", "executor.concurency; did you mean executor.concurrency?"),
        ("[exekutor]\nconcurrency = 1", "exekutor; did you mean executor?"),
        ("concurrency = 1", "concurrency; did you mean executor.concurrency?"),
        ("[zzz]\nqqq = 1", "unknown key zzz; `chronos-runtime config` lists all"),
        ("executor = 1", "executor is a table; write [executor] above its keys"),
        ("= 1", "settings.toml: not valid TOML"),
    ],
)
def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings({}, written(text), {})
    assert expected in str(error.value)
    assert "settings.toml" in str(error.value)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("CHRONOS_EXECUTOR_CONCURRENCY", "did you mean CHRONOS_EXECUTOR__CONCURRENCY?"),
        ("CHRONOS_TOPIC", "did you mean CHRONOS_TOPICS?"),
        ("CHRONOS_ZZZ", "`chronos-runtime config` lists all"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(variable: str, expected: str) -> None:
    with pytest.raises(ConfigError, match="unknown environment variable") as error:
        load_settings({}, None, {variable: "1"})
    assert variable in str(error.value)
    assert expected in str(error.value)


def test_what_kubernetes_sets_for_a_service_of_our_name_is_not_ours() -> None:
    load_settings(
        {},
        None,
        {
            "CHRONOS_SERVICE_HOST": "10.0.0.1",
            "CHRONOS_SERVICE_PORT_METRICS": "9464",
            "CHRONOS_PORT": "tcp://10.0.0.1:9464",
            "CHRONOS_PORT_9464_TCP_ADDR": "10.0.0.1",
            "CHRONOS_RUNTIME_SERVICE_HOST": "10.0.0.2",
        },
    )


def test_a_wrong_value_names_its_key_and_its_source() -> None:
    with pytest.raises(ConfigError) as error:
        load_settings({}, None, {"CHRONOS_EXECUTOR__CONCURRENCY": "many"})
    assert str(error.value).startswith("executor.concurrency: ")
    assert str(error.value).endswith("(from CHRONOS_EXECUTOR__CONCURRENCY)")


def test_settings_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"heartbeater.interval_s.*CHRONOS_HEARTBEATER"):
        load_settings({}, None, {"CHRONOS_HEARTBEATER__INTERVAL_S": "20"})


def test_two_variables_for_one_setting_must_agree() -> None:
    same = {"CHRONOS_DSN": "postgresql://a/x", "CHRONOS_DATABASE__DSN": "postgresql://a/x"}
    assert load_settings({}, None, same).config.database.dsn == "postgresql://a/x"
    with pytest.raises(ConfigError, match="differ; give one of them"):
        load_settings({}, None, same | {"CHRONOS_DSN": "postgresql://b/x"})


def test_a_file_that_was_named_must_be_there(cli: Cli) -> None:
    ended = cli("config", "--config", "nowhere.toml")
    assert ended.code == 2
    assert "cannot read nowhere.toml: No such file or directory" in ended.err


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ada:{SECRET}@db:5432/app",
        f"postgresql://ada@corp:{SECRET}@db/app",
        f"postgresql://ada:p@{SECRET}@db/app",
        f"postgresql://ada:p/{SECRET}@db/app",
        f"postgresql://ada:p#{SECRET}?x@db/app",
        f"postgresql://ada:{SECRET}/app",
        f"postgresql://db/app?user=ada&password={SECRET}&sslmode=require",
        f"postgresql://db/app?sslpassword={SECRET}",
        f"host=db password={SECRET}",
        f"ada:{SECRET}@db/app",
    ],
)
def test_no_secret_of_a_dsn_is_shown(dsn: str, cli: Cli) -> None:
    assert SECRET not in mask_dsn(dsn)
    for form in ([], ["--json"]):
        ended = cli("config", "--dsn", dsn, *form)
        assert ended.code == 0
        assert "***" in ended.out
        assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada@db:5432/app",
        "postgresql://db:5432,other:5433/app",
        "postgresql://postgres@/app?host=/run/postgresql&port=5433",
    ],
)
def test_a_dsn_without_secrets_is_shown_whole(dsn: str) -> None:
    assert mask_dsn(dsn) == dsn


def test_config_shows_every_value_with_its_source(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHRONOS_EXECUTOR__CONCURRENCY", "50")
    monkeypatch.setenv("CHRONOS_EXECUTOR__TOPIC_CONCURRENCY", "mail=3")
    tree = cli("config", "--json").json
    assert tree["executor"]["concurrency"] == {
        "value": 50,
        "source": "CHRONOS_EXECUTOR__CONCURRENCY",
    }
    assert tree["heartbeater"]["lease_s"] == {"value": 30.0, "source": "default"}
    assert "concurrency = 50" in cli("config").out


def test_what_config_prints_can_be_read_back(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONOS_TOPICS", "a,b")
    monkeypatch.setenv("CHRONOS_EXECUTOR__TOPIC_CONCURRENCY", "mail=3")
    printed = written(cli("config").out)
    monkeypatch.delenv("CHRONOS_TOPICS")
    monkeypatch.delenv("CHRONOS_EXECUTOR__TOPIC_CONCURRENCY")
    config = load_settings({}, printed, {}).config
    assert config.topics == ["a", "b"]
    assert config.executor.topic_concurrency == {"mail": 3}


def test_secrets_by_reference_are_shown_as_references(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SMTP_PASSWORD", "SMS_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    Path("chronos.toml").write_text(
        "[email]\nusername = 'shop'\npassword = 'env:SMTP_PASSWORD'\n"
        "[sms]\nsecrets = { token = 'env:SMS_TOKEN' }\n"
        "headers = { Authorization = 'Bearer {secret.token}' }\n",
        encoding="utf-8",
    )
    for options in ([], ["--json"]):
        shown = cli("config", *options).out
        assert "env:SMTP_PASSWORD" in shown
        assert "env:SMS_TOKEN" in shown
        assert "Bearer {secret.token}" in shown
        assert SECRET not in shown


def test_templates_can_be_given_as_text() -> None:
    config = load_settings(
        {},
        None,
        {"CHRONOS_SMS__BODY": "To={to}, Body={text}", "CHRONOS_SMS__SUCCESS": "200, 201"},
    ).config
    assert config.sms.body == {"To": "{to}", "Body": "{text}"}
    assert config.sms.success == [200, 201]
