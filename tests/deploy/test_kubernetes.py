"""The Kubernetes manifests fit the schemas of old and new clusters, and each other."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from tests.deploy.files import DOCKER, KUBERNETES, compose, manifest, manifests, named, unit

OLDEST = "1.25"
OWN = [
    (file, each)
    for file, each in manifests()
    if each["apiVersion"].split("/")[0] not in ("keda.sh", "kustomize.config.k8s.io")
]
SERVER, WORKER = manifest("Deployment", "pitboss"), manifest("Deployment", "pitboss-worker")
SCALED = manifest("ScaledObject", "pitboss-worker")

# The parts of KEDA's definitions that we use, and no others: a misspelled key is refused.
WHO = {"apiVersion": {"const": "keda.sh/v1alpha1"}, "kind": {}, "metadata": {"type": "object"}}
NAME = {"type": "string", "minLength": 1}


def closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


KEDA = {
    "TriggerAuthentication": closed(
        {
            **WHO,
            "spec": closed(
                {"secretTargetRef": {"type": "array", "items": closed({"parameter": NAME, "name": NAME, "key": NAME})}}
            ),
        }
    ),
    "ScaledObject": closed(
        {
            **WHO,
            "spec": closed(
                {
                    "scaleTargetRef": closed({"name": NAME}),
                    "minReplicaCount": {"type": "integer", "minimum": 0},
                    "maxReplicaCount": {"type": "integer", "minimum": 1},
                    "pollingInterval": {"type": "integer", "minimum": 1},
                    "triggers": {
                        "type": "array",
                        "minItems": 1,
                        "items": closed(
                            {
                                "type": {"const": "metrics-api"},
                                "metricType": {"enum": ["AverageValue", "Value"]},
                                "metadata": closed(
                                    {
                                        "targetValue": {"type": "string", "pattern": r"^\d+$"},
                                        "url": {"type": "string", "pattern": "^https?://"},
                                        "valueLocation": NAME,
                                        "authMode": {"const": "apiKey"},
                                        "method": {"enum": ["header", "query"]},
                                        "keyParamName": NAME,
                                    }
                                ),
                                "authenticationRef": closed({"name": NAME}),
                            }
                        ),
                    },
                }
            ),
        }
    ),
}


def pods() -> Iterator[dict[str, Any]]:
    yield from (each["spec"]["template"]["spec"] for each in (SERVER, WORKER))
    yield manifest("Pod", "pitboss-keys")["spec"]


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize(("file", "document"), OWN, ids=lambda each: each if isinstance(each, str) else each["kind"])
def test_a_manifest_fits_its_schema(file: str, document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("kind", KEDA)
def test_the_objects_of_keda_have_known_keys_only(kind: str) -> None:
    (document,) = (each for _, each in manifests() if each["kind"] == kind)
    jsonschema_rs.validator_for(KEDA[kind]).validate(document)


def test_everything_is_in_one_namespace() -> None:
    manifest("Namespace", "pitboss")
    for _, each in manifests():
        if each["kind"] not in ("Namespace", "Kustomization"):
            assert each["metadata"]["namespace"] == "pitboss"


def test_apply_leaves_out_the_secrets_and_the_pod_for_keys() -> None:
    """An example that is applied would replace the real secrets."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    there = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert there - set(listed) == {"kustomization.yaml", "keys.yaml", "secrets.example.yaml"}
    assert set(listed) <= there


def test_selectors_find_their_pods_and_no_others() -> None:
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in (("s", SERVER), ("w", WORKER))}
    assert labels["s"] != labels["w"]
    for name, each in (("pitboss", SERVER), ("pitboss-worker", WORKER)):
        wanted = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == wanted
        assert manifest("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == wanted
    assert manifest("Service", "pitboss")["spec"]["selector"] == labels["s"]


def test_secrets_that_are_used_are_in_the_example() -> None:
    known = {each["metadata"]["name"]: each["stringData"] for _, each in manifests() if each["kind"] == "Secret"}
    used = {one["secretRef"]["name"] for pod in pods() for one in pod["containers"][0]["envFrom"]}
    (reference,) = manifest("TriggerAuthentication", "pitboss-autoscaler")["spec"]["secretTargetRef"]
    assert used | {reference["name"]} == known.keys()
    assert reference["key"] in known[reference["name"]]
    assert not {"PITBOSS_STORE", "PGPASSWORD"} & known["pitboss-worker"].keys()


def test_the_server_is_probed_on_the_port_that_it_serves() -> None:
    server = container(SERVER)
    assert server["ports"] == [{"name": "http", "containerPort": 8000}]
    assert server["args"] == json.loads(named(DOCKER / "Dockerfile", "CMD")[0])
    assert server["args"][-1] == "8000"
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert server[probe]["httpGet"] == {"path": path, "port": "http"}
    (port,) = manifest("Service", "pitboss")["spec"]["ports"]
    assert port == {"name": "http", "port": 8000, "targetPort": "http"}


def test_the_autoscaler_asks_the_server_with_a_key() -> None:
    (trigger,) = SCALED["spec"]["triggers"]
    asked = urlsplit(trigger["metadata"]["url"])
    service = manifest("Service", "pitboss")
    assert asked.hostname == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert asked.port == service["spec"]["ports"][0]["port"]
    assert asked.path == "/api/task-types/NAME/scaling"
    assert trigger["metadata"]["keyParamName"] == "X-API-Key"
    assert (
        trigger["authenticationRef"]["name"]
        == manifest("TriggerAuthentication", "pitboss-autoscaler")["metadata"]["name"]
    )


def test_one_worker_for_each_wanted_worker() -> None:
    spec = SCALED["spec"]
    (trigger,) = spec["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["targetValue"]) == ("AverageValue", "1")
    assert parse_qs(urlsplit(trigger["metadata"]["url"]).query)["max_workers"] == [str(spec["maxReplicaCount"])]
    assert spec["scaleTargetRef"]["name"] == WORKER["metadata"]["name"]
    assert "replicas" not in WORKER["spec"], "every apply would set the number back"


def test_one_server_can_go_while_another_answers() -> None:
    budget = manifest("PodDisruptionBudget", "pitboss")["spec"]["minAvailable"]
    assert SERVER["spec"]["replicas"] > budget >= 1


def test_variables_of_services_do_not_look_like_settings() -> None:
    """A service called pitboss sets PITBOSS_PORT and others in every pod of its namespace, unless the pod refuses."""
    assert all(pod["enableServiceLinks"] is False for pod in pods())


def test_every_manager_has_a_host_name_of_its_own() -> None:
    """With equal host names, one manager would take another for dead."""
    assert all(not pod.keys() & {"hostNetwork", "hostPID", "hostname"} for pod in pods())


def test_pods_are_restricted() -> None:
    """As the policy "restricted" of the namespace demands."""
    user, group = map(int, named(DOCKER / "Dockerfile", "USER")[0].split(":"))
    for pod in pods():
        context, (only,) = pod["securityContext"], pod["containers"]
        assert context["runAsNonRoot"] is True
        assert (context["runAsUser"], context["runAsGroup"]) == (user, group)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in only["resources"]["limits"]


def test_a_worker_has_the_same_time_to_end_its_task_everywhere() -> None:
    grace = WORKER["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert compose()["services"]["worker"]["stop_grace_period"] == f"{grace}s"
    assert unit("pitboss-worker@.service")["TimeoutStopSec"] == [str(grace)]
    allowed = grace - 30
    assert compose()["services"]["worker"]["environment"]["WORKER_SHUTDOWN_GRACE"] == allowed
    assert {"name": "WORKER_SHUTDOWN_GRACE", "value": str(allowed)} in container(WORKER)["env"]
    assert f"WORKER_SHUTDOWN_GRACE={allowed}" in unit("pitboss-worker@.service")["Environment"][0].split()
    stop = SERVER["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert compose()["services"]["server"]["stop_grace_period"] == f"{stop}s"
    assert unit("pitboss.service")["TimeoutStopSec"] == [str(stop)]


def test_images_and_health_checks_are_those_of_docker() -> None:
    services = compose()["services"]
    assert container(SERVER)["image"] == services["server"]["image"]
    assert container(WORKER)["image"] == services["worker"]["image"]
    (check,) = named(DOCKER / "worker.Dockerfile", "HEALTHCHECK")
    assert container(WORKER)["readinessProbe"]["exec"]["command"] == json.loads(check[check.index("[") :])
    images = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["images"]
    listed = {f"{each['name']}:{each['newTag']}" for each in images}
    assert listed == {services["server"]["image"], services["worker"]["image"]}


def test_no_text_names_a_registry() -> None:
    for path in (*KUBERNETES.iterdir(), *DOCKER.iterdir()):
        for image in re.findall(r"(?:image:|^FROM|newName:)\s+(\S+)", path.read_text(), re.MULTILINE):
            assert "/" not in image
