"""What `heapfit fit` writes to deploy a choice is read by the tools that it is for: a hard value
comes through whole, and each tool refuses a file with a mistake."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from heapfit import catalogue
from heapfit.fit import deploy

pytestmark = pytest.mark.full

VALUES = {"HEAPFIT_OPTIONS": "decay_ms:50", "MALLOC_CONF": 'prof:true, $HOME %h "a b" \\'}
# A Deployment's own: the fragment is a patch of one.
LABELS = {"app": "service"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    chosen = heapfit.model_copy(update={"variant_of": heapfit, "environment": VALUES})
    memory = deploy.Memory(is_mean=False, most=1e8, before=2e8)
    of = deploy.Promise("", glibc, memory=memory, time=" heapfit fit found 0.9 before.")
    folder = tmp_path_factory.mktemp("written")
    deploy.write(chosen, of, folder / "deploy")
    return folder / "deploy"


def said(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_systemd_takes_the_drop_in(written: Path, tmp_path: Path) -> None:
    unit = tmp_path / "it.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "it.service.d" / deploy.DROP_IN
    drop_in.parent.mkdir()
    drop_in.write_text((written / deploy.DROP_IN).read_text())
    assert said("systemd-analyze", "verify", unit).stderr == ""
    with drop_in.open("a") as file:
        file.write('Environment="A=1\n')
    assert "Invalid syntax" in said("systemd-analyze", "verify", unit).stderr


def test_prometheus_takes_the_rules(written: Path, tmp_path: Path) -> None:
    alerts = written / deploy.ALERTS
    taken = said("promtool", "check", "rules", alerts)
    assert (taken.returncode, "2 rules found" in taken.stdout) == (0, True), taken.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(alerts.read_text().replace("[1h]", "[1h"))
    assert said("promtool", "check", "rules", wrong).returncode != 0


def test_compose_reads_the_values(written: Path, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  SERVICE:\n    image: it\n")
    part = written / "compose.part.yaml"
    files = ["-f", tmp_path / "compose.yaml", "-f", part]
    merged = said("docker-compose", *files, "config")
    assert merged.returncode == 0, merged.stderr
    [service] = yaml.safe_load(merged.stdout)["services"].values()
    # It prints what it could read again.
    read = {k: v.replace("$$", "$") for k, v in service["environment"].items()}
    assert read == deploy_values(written)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(part.read_text().replace("environment", "environments"))
    assert said("docker-compose", *files[:2], "-f", wrong, "config").returncode != 0


def test_kubernetes_takes_the_patch(written: Path) -> None:
    import kubernetes_validate as validate

    patch: dict[str, Any] = yaml.safe_load((written / "kubernetes.part.yaml").read_text())
    template = patch["spec"]["template"]
    [container] = template["spec"]["containers"]
    container["image"] = "it"
    template["metadata"] = {"labels": LABELS}
    spec = {**patch["spec"], "selector": {"matchLabels": LABELS}}
    whole = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "it"},
        "spec": spec,
    }
    version = validate.latest_version()
    validate.validate(whole, version, strict=True)
    assert {each["name"]: each["value"] for each in container["env"]} == deploy_values(written)
    container["env"][0]["values"] = "1"
    with pytest.raises(validate.ValidationError):
        validate.validate(whole, version, strict=True)


def deploy_values(written: Path) -> dict[str, str]:
    """What the drop-in sets, which the other files must agree with."""
    lines = (written / deploy.DROP_IN).read_text().splitlines()
    words = [json.loads(each.partition("=")[2]) for each in lines if each.startswith("Environment")]
    found = dict(word.replace("%%", "%").split("=", 1) for word in words)
    assert found.items() >= VALUES.items()
    return found
