"""What a task asks of its resource, made of its parameters."""

from typing import Any

import pytest

from pitboss.model.canonical import to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.resource import Want
from pitboss.model.want_template import WantTemplate, checked_template, template_in_schema, with_template


@pytest.mark.parametrize(
    ("template", "params", "want"),
    [
        (WantTemplate(), {"a": 1}, None),
        (WantTemplate(("eu", "fast", "eu")), {}, Want(("eu", "fast"))),
        (WantTemplate(("group-{worker}",)), {"worker": 3}, Want(("group-3",))),
        (WantTemplate(("group-{worker}",), defaults={"worker": 1}), {}, Want(("group-1",))),
        (WantTemplate(sticky="account"), {"account": "anna"}, Want(key="anna")),
        (WantTemplate(sticky="account"), {"account": 17}, Want(key="17")),
        (WantTemplate(sticky="account"), {"account": None}, None),
    ],
)
def test_a_want_follows_from_the_parameters(template: WantTemplate, params: dict[str, Any], want: Want | None) -> None:
    assert template.want(to_json(params)) == want


def test_who_enqueues_by_name_makes_the_same_want() -> None:
    template = WantTemplate(("group-{worker}",), "account", {"worker": 2})
    schema = with_template('{"type":"object"}', template)
    assert template_in_schema(schema) == template
    assert template_in_schema('{"type":"object"}') is None
    assert with_template("{}", WantTemplate()) == "{}"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (WantTemplate(sticky="acount"), "names acount"),
        (WantTemplate(("group-{worker}",)), "names worker"),
        (WantTemplate(("group-{account.name}",)), "name of a parameter"),
        (WantTemplate(("group-{}",)), "name of a parameter"),
        (WantTemplate(("group-{account",)), "name of a parameter"),
        (WantTemplate(("a b",)), "cannot name a label"),
    ],
)
def test_a_template_names_what_the_function_has(template: WantTemplate, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        checked_template(template, "check", {"account": None})


def test_a_value_that_cannot_be_a_label_or_key_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidInput, match="label"):
        WantTemplate(("group-{worker}",)).want('{"worker":"a b"}')
    with pytest.raises(InvalidInput, match="512"):
        WantTemplate(sticky="account").want(to_json({"account": "x" * 600}))
