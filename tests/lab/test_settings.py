import inspect
from pathlib import Path

import pytest

from smgopt import ResNet, SMGOpt
from smgopt.lab import settings, toml
from smgopt.lab.config import ConvResNetConfig, ResNetConfig, SMGOptConfig, TorchConfig
from smgopt.lab.errors import InputError


def test_the_things_people_vary_have_short_names() -> None:
    words = "data=mnist depth=2048 width=10 levels=8 lr=0.1 batch=1000 cycles=300 seed=1 optimizer=adam"
    config = settings.load(pairs=words.split())
    assert config.data.name == "mnist"
    assert (config.network.depth, config.network.width, config.hierarchy.levels) == (2048, 10, 8)
    assert isinstance(config.optimizer, TorchConfig)
    assert config.optimizer.arguments["lr"] == 0.1
    assert (config.data.batch, config.run.cycles, config.run.seed) == (1000, 300, 1)


def test_full_names_and_sections_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[network]\ndepth = 64\n[optimizer]\nsmoothing = 'table-1'\nlr = 0.5\n")
    assert settings.load(file, ["optimizer.lr=0.2"]) == settings.make(depth=64, smoothing="table-1", lr=0.2)


def test_a_resolved_configuration_is_a_configuration(tmp_path: Path) -> None:
    config = settings.make(
        optimizer="adam", betas=[0.8, 0.9], depth=8, levels=2, epochs=2.5, data="a\t'b\"\x7fc"
    )
    file = tmp_path / "c.toml"
    file.write_text(toml.write(config.tree()))
    assert settings.load(file) == config


def test_without_a_limit_there_are_300_cycles() -> None:
    assert settings.make().run.cycles == 300
    assert settings.make(epochs=2.0).run.cycles is None
    assert settings.make(target_accuracy=0.9).run.cycles == 300


def test_a_new_limit_replaces_the_old_one() -> None:
    config = settings.make(cycles=5, target_accuracy=0.5)
    changed = settings.change(config, ["epochs=3"]).run
    assert (changed.cycles, changed.epochs, changed.target_accuracy) == (None, 3.0, 0.5)
    assert settings.change(config, ["seed=3"]).run.cycles == 5


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("lrr=2", "lrr=2: there is no setting 'lrr', did you mean 'lr'?"),
        ("network=cnn", "network=cnn: network.kind must be 'resnet' or 'convresnet', not 'cnn'"),
        ("network=convresne", "did you mean 'convresnet'?"),
        ("norm=batch", "norm=batch: there is no setting 'norm' with the network 'resnet'"),
        ("optimizer.smoothng=x", "did you mean 'optimizer.smoothing'?"),
        ("qqq=1", "qqq=1: there is no setting 'qqq'; `smgopt settings` lists all there are"),
        ("depth=abc", "depth=abc: network.depth must be a whole number, not 'abc'"),
        ("depth=0", "depth=0: network.depth must be at least 1, not 0"),
        ("levels=4.5", "hierarchy.levels must be a whole number, not 4.5"),
        ("levels=12", "levels=12: 12 levels halve the depth 11 times"),
        ("line_search=maybe", "optimizer.line_search must be true or false, not 'maybe'"),
        ("coupling=papr", "must be 'paper' or 'consistent', not 'papr', did you mean 'paper'?"),
        ("lr=-1", "lr=-1: lr must be positive, not -1.0"),
        ("lr=nan", "optimizer.lr must be a finite number, not nan"),
        ("lr=[0.1, 'a']", "optimizer.lr must be a number or a list of numbers"),
        ("lr=[0.1]", "lr has 1 entries for 4 levels"),
        ("smoothing=table-3", "did you mean 'table-2'?"),
        ("smoothing=[[1, 0]]", "smoothing has 1 entries for 4 levels"),
        ("initial_step=0", "initial_step must be a positive number, not 0.0"),
        ("evaluate=0", "run.evaluate must be at least 1, not 0"),
        ("evaluate=often", "run.evaluate must be a whole number or 'auto', not 'often'"),
        ("seed=-1", "run.seed must be at least 0, not -1"),
        ("seed=4294967296", "run.seed must be less than 4294967296"),
        ("epochs=0", "run.epochs must be greater than 0.0, not 0"),
        ("target_accuracy=90", "run.target_accuracy must be at most 1.0, not 90"),
        ("holdout=1.0", "data.holdout must be less than 1.0"),
        ("optimizer=adm", "optimizer=adm: there is no optimizer 'adm', did you mean 'adam'?"),
        ("width=10000000000", "there is no such network: Storage size"),
        ("lr=[2020-01-01]", "optimizer.lr must be a number or a list of numbers"),
        ("epochs=1e308", "run.epochs must be at most 1000000000"),
        ("threads=1000000000000", "run.threads must be at most 4096"),
        ("batch=1000000000000000000000000000000", "data.batch must be at most 1000000000"),
        ("depth", "'depth' is no setting: write it as name=value"),
        ("=3", "'=3' is no setting"),
        ("data=\udcff", "is no setting"),
        ("depth=1\nseed=2", "network.depth must be a whole number"),
    ],
)
def test_a_wrong_setting_names_itself_and_what_would_be_right(pair: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings.load(pairs=[pair])
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("coupling=paper", "there is no setting 'coupling' with the optimizer 'adam'"),
        ("betaz=[0.9, 0.9]", "did you mean 'betas'?"),
        ("betas=[0.9]", "optimizer.betas must be a list of 2 numbers, not [0.9]"),
        ("betas=[0.9, 2.0]", "adam: Invalid beta parameter at index 1: 2.0"),
        ("eps=small", "optimizer.eps must be a number, not 'small'"),
        ("amsgrad=1", "optimizer.amsgrad must be true or false, not 1"),
        ("foreach=true", "there is no setting 'foreach'"),
    ],
)
def test_torchs_optimizers_have_the_settings_of_their_signature(pair: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings.load(pairs=["optimizer=adam", pair])
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [("line_search_fn=foo", "only 'strong_wolfe' is supported"), ("history_size=1.5", "lbfgs: ")],
)
def test_what_an_optimizer_notices_in_its_first_step(pair: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings.load(pairs=["optimizer=lbfgs", pair])
    assert sentence in str(error.value)


def test_errors_of_torch_are_one_line() -> None:
    with pytest.raises(InputError) as error:
        settings.load(pairs=["depth=1000000000000000000000000000000"])
    assert "\n" not in str(error.value)


def test_a_path_means_the_same_file_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.make(data="mine.npz").data.name == str(tmp_path / "mine.npz")
    assert settings.make(data="mnist").data.name == "mnist"


@pytest.mark.parametrize(
    "name", ["sgd", "Adam", "adamw", "rmsprop", "lbfgs", "adagrad", "nadam", "adafactor"]
)
def test_any_of_torchs_optimizers(name: str) -> None:
    assert settings.make(optimizer=name).optimizer.name == name.lower()


def test_everything_wrong_in_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        "depth = 3\n\n[network]\nwidth = 'a'\n# depth\ndept = 5\n"
        "[optimizer]\nlr = [\n  0.1,\n  'x']\n[run]\nseed = 1\ncycles=1.5\n[foo]\na = 1\n"
    )
    with pytest.raises(InputError) as error:
        settings.load(file)
    assert str(error.value).split("\n") == [
        f"{file}, line 1: there is no setting 'depth', did you mean 'network.depth'?",
        f"{file}, line 14: there is no setting 'foo'; `smgopt settings` lists all there are",
        f"{file}, line 6: there is no setting 'network.dept', did you mean 'network.depth'?",
        f"{file}, line 4: network.width must be a whole number, not 'a'",
        f"{file}, line 8: optimizer.lr must be a number or a list of numbers, not [0.1, 'x']",
        f"{file}, line 13: run.cycles must be a whole number, not 1.5",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"network = 3", "line 1: network must be a section, [network]"),
        (b"[optimizer]\nname = 3", "line 2: optimizer.name must be 'smgopt', not 3"),
        (b"[network", "is not valid TOML"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a = " + b"[" * 5000, "is not valid TOML"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: bytes, sentence: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(text)
    with pytest.raises(InputError) as error:
        settings.load(file)
    assert str(file) in str(error.value)
    assert sentence in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        settings.load(tmp_path / "c.toml")


def test_the_methods_defaults_are_the_methods() -> None:
    signature = inspect.signature(SMGOpt).parameters
    ours = SMGOptConfig().model_dump(exclude={"name", "smoothing"})
    assert ours == {key: signature[key].default for key in ours}
    ours = ResNetConfig().model_dump(include={"T", "activation", "closing_relu"})
    assert ours == {key: inspect.signature(ResNet).parameters[key].default for key in ours}


def test_all_settings_are_listed_and_can_be_set() -> None:
    listed = settings.listing()
    assert all(setting.meaning for setting in listed)
    for setting in listed:
        choice = dict([setting.only.split("=")]) if setting.only else {}
        if setting.default is not None:
            assert settings.make({}, **choice, **{setting.short: setting.default}) == settings.make(
                {}, **choice
            )


def test_every_kind_of_network_has_settings_of_its_own() -> None:
    config = settings.load(pairs=["norm=group", "network=convresnet", "width=4"])
    assert isinstance(config.network, ConvResNetConfig)
    assert (config.network.width, config.network.depth, config.network.norm) == (4, 8, "group")
    assert settings.make(config.tree()) == config
    listed = {(setting.name, setting.only): setting.default for setting in settings.listing()}
    assert listed["network.width", ""] == 10
    assert listed["network.width", "network=convresnet"] == 16
