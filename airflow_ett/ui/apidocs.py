"""The API's description as a page: the OpenAPI document laid out for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MODEL = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a route or a field of an answer; ``model`` is the one that it links to."""

    name: str
    kind: str
    model: str | None
    needed: bool
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route does. ``answers`` are status, media types, model and meaning."""

    method: str
    path: str
    title: str
    text: str
    parameters: list[Field]
    answers: list[tuple[str, str, str | None, str]]


@dataclass(frozen=True, slots=True)
class Model:
    """What is answered or asked for: its fields, or the words that it may be."""

    name: str
    text: str
    fields: list[Field]


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """Return the operations of an OpenAPI document, in its order."""
    return [
        Operation(
            method=method.upper(),
            path=path,
            title=told.get("summary", ""),
            text=told.get("description", ""),
            parameters=[_parameter(one) for one in told.get("parameters", ())],
            answers=list(_answers(told.get("responses", {}))),
        )
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]


def models(document: Mapping[str, Any]) -> list[Model]:
    """Return the models of an OpenAPI document by name."""
    schemas = document.get("components", {}).get("schemas", {})
    return [
        Model(name, _meaning(schema), list(_fields(schema)))
        for name, schema in sorted(schemas.items())
    ]


def _meaning(schema: Mapping[str, Any]) -> str:
    text: str = schema.get("description", "")
    return f"{text} {_kind(schema)[0]}".strip() if "enum" in schema else text


def _parameter(told: Mapping[str, Any]) -> Field:
    kind, model = _kind(told.get("schema", {}))
    return Field(
        name=f"{told['name']} ({told['in']})",
        # A query says null by leaving the parameter out.
        kind=kind.removesuffix(" or null"),
        model=model,
        needed=told.get("required", False),
        text=told.get("description", ""),
    )


def _fields(schema: Mapping[str, Any]) -> Iterator[Field]:
    needed = schema.get("required", ())
    for name, told in schema.get("properties", {}).items():
        kind, model = _kind(told)
        yield Field(name, kind, model, name in needed, told.get("description", ""))


def _answers(responses: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, str]]:
    for status, told in responses.items():
        content = told.get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        yield status, ", ".join(content), _kind(schema)[1], told.get("description", "")


def _kind(schema: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return a schema's type in words, and the model in it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_MODEL)
        return name, name
    if "anyOf" in schema:
        parts = [_kind(part) for part in schema["anyOf"]]
        model = next((model for _, model in parts if model), None)
        return " or ".join(kind for kind, _ in parts), model
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum", [schema.get("const")]))), None
    if schema.get("type") == "array":
        kind, model = _kind(schema.get("items", {}))
        return f"list of {kind}", model
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    return " ".join([schema.get("type", "any"), *limits]), None


_LIMITS = {"minimum": "from", "maximum": "to"}
