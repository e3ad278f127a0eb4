"""Makes generated requests use valid cursors.

A cursor is valid only if the service returned it and the request has the same filters. In requests that are meant to be
valid, a cursor from an earlier response therefore gets the filters of that request, and any other cursor is removed.
Requests that are meant to be invalid are sent unchanged.
"""

import schemathesis
from schemathesis import GenerationMode

FILTERS_OF_CURSOR: dict[str, dict] = {}


def with_exact_patterns(node):
    """Returns the schema with the patterns that the service checks, which are stricter than the published ones."""
    if isinstance(node, list):
        return [with_exact_patterns(child) for child in node]
    if not isinstance(node, dict):
        return node
    exact = {"pattern": node["x-exact-pattern"]} if "x-exact-pattern" in node else {}
    return {key: with_exact_patterns(child) for key, child in node.items()} | exact


@schemathesis.hook
def before_load_schema(context, raw_schema):
    raw_schema.update(with_exact_patterns(raw_schema))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE or "nextCursor" not in case.query:
        return
    cursor, size = case.query.pop("nextCursor"), case.query.get("size")
    if cursor in FILTERS_OF_CURSOR:
        case.query.clear()
        case.query.update(FILTERS_OF_CURSOR[cursor], nextCursor=cursor)
        if size is not None:
            case.query["size"] = size


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code == 200 and (cursor := response.json()["nextCursor"]):
        FILTERS_OF_CURSOR[cursor] = {k: v for k, v in case.query.items() if k not in ("nextCursor", "size")}
