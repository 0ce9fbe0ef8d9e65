"""Specs, expressions, conditions and patch streams for the test beside the real json-render: valid ones, and damage.

Everything comes from one seeded generator, so a difference that was found once is found again.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

Json = Any
STATE: dict[str, Json] = {
    "tab": "home",
    "n": 3,
    "half": 0.5,
    "big": 1e21,
    "tiny": 2.5e-7,
    "zero": 0,
    "no": False,
    "yes": True,
    "none": None,
    "empty": "",
    "user": {"name": "Ann", "a/b": "slash", "~": "tilde", "": "blank"},
    "list": [1, "two", None, [3]],
    "breads": [
        {"name": "Rye", "price": 4, "sold": False, "tags": ["dark", "sour"], "flags": [{"on": True}]},
        {"name": "Spelt", "price": 4.5, "sold": True, "tags": [], "flags": []},
    ],
    "bare": [],
}
PATHS = [
    "/tab",
    "tab",
    "/n",
    "/half",
    "/big",
    "/tiny",
    "/zero",
    "/no",
    "/yes",
    "/none",
    "/empty",
    "/user/name",
    "user/name",
    "/user",
    "/user/a~1b",
    "/user/~0",
    "/user/",
    "/list/1",
    "/list/01",
    "/list/1x",
    "/list/ 1",
    "/list/-1",
    "/list/-",
    "/list/9",
    "/list/length",
    "/list",
    "/breads/0/name",
    "/breads/1/tags",
    "/gone",
    "/gone/deeper",
    "/tab/0",
    "",
    "/",
    "//",
    "/n/",
    "/breads",
    "/bare",
    "/toString",
    "/user/constructor",
]
ITEM_PATHS = ["name", "/name", "price", "sold", "tags", "tags/0", "flags", "gone", "", "/", "toString"]
SCALARS = [None, True, False, 0, 1, 3, 3.0, 0.5, "", "home", "Rye", "3"]


class Corpus:
    """One seeded source of cases."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- expressions and conditions ------------------------------------------------------------------------------

    def scope(self) -> dict[str, Json]:
        """An evaluation context as upstream takes it."""
        scope: dict[str, Json] = {"stateModel": STATE}
        if self.chance(0.7):
            index = self.pick(0, 1)
            scope |= {
                "repeatItem": STATE["breads"][index],
                "repeatIndex": index,
                "repeatBasePath": f"/breads/{index}",
            }
        elif self.chance(0.3):
            scope |= {"repeatItem": STATE["list"][2], "repeatIndex": 2, "repeatBasePath": "/list/2"}
        return scope

    def comparison(self) -> dict[str, Json]:
        if self.chance(0.3):
            return {}
        operators = self.random.sample(["eq", "neq", "gt", "gte", "lt", "lte"], self.pick(1, 1, 1, 2))
        made: dict[str, Json] = {}
        for operator in operators:
            is_order = operator not in ("eq", "neq")
            literal = self.pick(0, 1, 3, 4.5, -2) if is_order else self.pick(*SCALARS, [], {})
            made[operator] = {"$state": self.pick(*PATHS)} if self.chance(0.3) else literal
        return made | ({"not": True} if self.chance(0.25) else {})

    def single(self) -> dict[str, Json]:
        source = self.pick(
            {"$state": self.pick(*PATHS)},
            {"$state": self.pick(*PATHS)},
            {"$item": self.pick(*ITEM_PATHS)},
            {"$index": True},
        )
        return {**source, **self.comparison()}

    def condition(self, depth: int = 2) -> Json:
        kind = self.pick("bool", "one", "one", "all", "and", "or") if depth else "one"
        if kind == "bool":
            return self.pick(True, False)
        if kind == "one":
            return self.single()
        if kind == "all":
            return [self.single() for _ in range(self.pick(0, 1, 2, 3))]
        return {f"${kind}": [self.condition(depth - 1) for _ in range(self.pick(0, 1, 2, 3))]}

    def damaged_condition(self) -> Json:
        condition = self.condition()
        target = condition if isinstance(condition, dict) else {}
        return self.pick(
            None,
            1,
            "yes",
            {},
            [[]],
            [True],
            [condition],
            [None],
            {"$and": {}},
            {"$or": "x"},
            {"path": "/a"},
            {"and": [condition]},
            {"$state": 1},
            {"$index": False},
            {"$index": 1},
            {"auth": "signedIn"},
            {"$and": [], "$or": []},
            {"$and": [None]},
            {**target, "$state": "/a"},
            {**target, "$item": "a"},
            {**target, "not": False},
            {**target, "not": None},
            {**target, "gt": "3"},
            {**target, "lte": {"$state": 1}},
            {**target, "extra": 1},
            {**target, "gt": {"$state": "/n", "also": 1}},
            {**target, "gte": True},
            {"$state": "/n", "gt": None},
        )

    def template(self) -> str:
        parts = [f"${{{path}}}" for path in self.random.sample(PATHS + ITEM_PATHS, 3)]
        return "".join(self.random.sample([*parts, "Hello ", "${}", "${", "}", "$", "${a${b}", "{x}"], 5))

    def expression(self, depth: int = 2) -> Json:
        kind = self.pick("state", "item", "index", "bindState", "bindItem", "template", "cond", "list", "map", "scalar")
        if kind == "cond" and depth:
            branches = {"$then": self.expression(depth - 1), "$else": self.expression(depth - 1)}
            return {"$cond": self.condition(), **branches}
        if kind == "list" and depth:
            return [self.expression(depth - 1) for _ in range(self.pick(0, 1, 3))]
        if kind == "map" and depth:
            return {key: self.expression(depth - 1) for key in self.random.sample(["a", "b", "c"], 2)}
        return {
            "state": {"$state": self.pick(*PATHS)},
            "bindState": {"$bindState": self.pick(*PATHS)},
            "item": {"$item": self.pick(*ITEM_PATHS)},
            "bindItem": {"$bindItem": self.pick(*ITEM_PATHS)},
            "index": {"$index": True},
            "template": {"$template": self.template()},
        }.get(kind, self.pick(*SCALARS))

    def damaged_expression(self) -> Json:
        return self.pick(
            {"$state": 5},
            {"$state": "/n", "$item": "name"},
            {"$cond": True},
            {"$unknown": 1},
            {"$cond": {"x": 1}, "$then": 1, "$else": 2},
            {"$computed": "sum", "args": {"a": 1}},
            {"$template": 7},
            {"$index": 0},
            {"$state": "/n", "x": 1},
            [{"$item": None}],
            {"a": {"$bindState": []}},
            {"$format": "currency", "value": 3},
        )

    # -- specs ---------------------------------------------------------------------------------------------------

    def spec(self) -> dict[str, Json]:
        """A page that json-render and this product both accept, with repeats, slots, conditions and expressions."""
        elements: dict[str, Json] = {
            "page": {"type": "Page", "props": {"title": "A page"}, "children": ["hero", "s", "grid"]},
            "hero": {"type": "Hero", "props": {"heading": {"$template": "Hi ${/user/name}"}}, "children": []},
            "s": {"type": "Section", "props": {"heading": "Bread"}, "children": ["t"], "slots": {"aside": ["note"]}},
            "t": {"type": "Text", "props": {"text": "Today"}},
            "note": {"type": "Text", "props": {"text": "Beside"}, "children": []},
            "grid": {
                "type": "Grid",
                "props": {},
                "children": ["stack"],
                "repeat": {"statePath": self.pick("/breads", "breads", "/bare"), "key": "name"},
            },
            "stack": {"type": "Stack", "props": {}, "children": ["name", "tags"]},
            "name": {"type": "Text", "props": {"text": {"$template": "Bread ${name}"}}, "children": []},
            "tags": {
                "type": "Stack",
                "props": {},
                "children": ["tag"],
                "repeat": {"statePath": {"$item": "tags"}},
            },
            "tag": {"type": "Text", "props": {"text": {"$template": "Tag ${/tab}"}}, "children": []},
        }
        for key in self.random.sample(["hero", "s", "grid", "stack", "name", "tags", "note"], 2):
            elements[key]["visible"] = self.condition()
        return {"root": "page", "elements": elements, "state": deepcopy(STATE)}

    def damaged_spec(self) -> dict[str, Json]:
        spec = self.spec()
        for damage in self.random.sample(self.damages(), self.pick(1, 1, 2, 3)):
            try:
                damage(spec)
            except (KeyError, TypeError, AttributeError, IndexError):
                continue  # another damage took away what this one needs
        return spec

    def element(self, spec: dict[str, Json]) -> dict[str, Json]:
        found = spec["elements"][self.pick(*spec["elements"])]
        if not isinstance(found, dict):
            raise TypeError
        return found

    def damages(self) -> list[Callable[[dict[str, Json]], None]]:
        return [
            self._root,
            self._elements,
            self._children,
            self._dangling,
            self._slots,
            self._misplaced,
            self._twice,
            self._visible,
            self._repeat,
            self._relative,
            self._state,
            self._element,
            self._field,
            self._expression,
            self._props,
            self._key,
            self._orphan,
            self._cycle,
            self._action,
            self._share,
            self._remove,
        ]

    def _root(self, spec: dict[str, Json]) -> None:
        root = self.pick("", None, 0, 5, "gone", "toString", "hero", ["page"], "constructor", False, "page ")
        spec["root"] = root
        if self.chance(0.2):
            del spec["root"]

    def _elements(self, spec: dict[str, Json]) -> None:
        spec["elements"] = self.pick({}, [], None, "page", 5, [spec["elements"]["page"]])

    def _children(self, spec: dict[str, Json]) -> None:
        self.element(spec)["children"] = self.pick(None, "t", "", {}, [1], [None], [["t"]], 5, True, ["t", 0], [])

    def _dangling(self, spec: dict[str, Json]) -> None:
        self.element(spec).setdefault("children", []).append(self.pick("gone", "", "toString", "page ", "valueOf"))

    def _slots(self, spec: dict[str, Json]) -> None:
        slots = self.pick(
            {"aside": ["gone"]}, {"aside": []}, {"foot": ["note"]}, None, [], {"aside": None}, {"aside": "note"}
        )
        self.element(spec)["slots"] = slots

    def _misplaced(self, spec: dict[str, Json]) -> None:
        value = {
            "visible": self.pick(True, None, self.condition(), {}),
            "on": self.pick({}, None, {"press": {"action": "x"}}),
            "repeat": self.pick({"statePath": "/breads"}, {}, None),
            "watch": self.pick({}, {"/n": {"action": "x"}}),
        }
        name = self.pick(*value)
        self.element(spec)["props"][name] = value[name]

    def _twice(self, spec: dict[str, Json]) -> None:
        element = self.element(spec)
        element["visible"], element["props"]["visible"] = True, self.pick(True, False)

    def _visible(self, spec: dict[str, Json]) -> None:
        self.element(spec)["visible"] = self.damaged_condition() if self.chance(0.8) else self.condition()

    def _repeat(self, spec: dict[str, Json]) -> None:
        self.element(spec)["repeat"] = self.pick(
            None,
            {},
            [],
            "breads",
            {"statePath": "/breads"},
            {"statePath": "/user"},
            {"statePath": "/gone"},
            {"statePath": ""},
            {"statePath": 5},
            {"statePath": None},
            {"statePath": {"$item": 5}},
            {"statePath": {}},
            {"statePath": "/breads", "key": 5},
            {"statePath": "/breads", "limit": 3},
            {"statePath": "/list/3"},
        )

    def _relative(self, spec: dict[str, Json]) -> None:
        key = self.pick("tags", "tags", "stack", "s", "grid", "page", "tag")
        spec["elements"][key]["repeat"] = {"statePath": {"$item": self.pick("tags", "flags", "name", "", "/", "gone")}}

    def _state(self, spec: dict[str, Json]) -> None:
        spec["state"] = self.pick({}, None, [], "x", {"breads": {}}, {"breads": [1]}, {"breads": [{"tags": 5}]})
        if self.chance(0.3):
            del spec["state"]

    def _element(self, spec: dict[str, Json]) -> None:
        spec["elements"][self.pick(*spec["elements"])] = self.pick(None, 0, 5, "", "Text", [], {}, True)

    def _field(self, spec: dict[str, Json]) -> None:
        target = self.pick(self.element(spec), spec)
        target[self.pick("onclick", "key", "id", "style", "type")] = self.pick("x", 1, None)

    def _expression(self, spec: dict[str, Json]) -> None:
        self.element(spec)["props"]["text"] = self.damaged_expression() if self.chance(0.7) else self.expression()

    def _props(self, spec: dict[str, Json]) -> None:
        self.element(spec)["props"] = self.pick(None, [], "x", {}, {"children": ["t"]}, {"$state": "/user"}, {"x": 1})

    def _key(self, spec: dict[str, Json]) -> None:
        new = self.pick("1", "a b", "toString", "é", "x" * 70, "fine-key")
        spec["elements"][new] = spec["elements"].pop("hero")
        spec["elements"]["page"]["children"][0] = new

    def _orphan(self, spec: dict[str, Json]) -> None:
        repeat = {"repeat": {"statePath": {"$item": "x"}}} if self.chance(0.4) else {}
        spec["elements"]["lost"] = {"type": "Stack", "props": {}, "children": self.pick([], ["t"], ["lost"]), **repeat}

    def _cycle(self, spec: dict[str, Json]) -> None:
        spec["elements"][self.pick("stack", "s", "grid")]["children"].append(self.pick("s", "grid", "page", "stack"))

    def _action(self, spec: dict[str, Json]) -> None:
        name = self.pick("on", "watch")
        self.element(spec)[name] = self.pick({}, None, {"press": {"action": "setState", "params": {"value": 1}}})

    def _share(self, spec: dict[str, Json]) -> None:
        self.element(spec).setdefault("children", []).append(self.pick("t", "note", "tags", "name"))

    def _remove(self, spec: dict[str, Json]) -> None:
        del spec["elements"][self.pick(*spec["elements"])]

    # -- edits ---------------------------------------------------------------------------------------------------

    def value(self, depth: int = 2) -> Json:
        kind = self.pick("scalar", "scalar", "list", "map") if depth else "scalar"
        if kind == "list":
            return [self.value(depth - 1) for _ in range(self.pick(0, 1, 2, 3))]
        if kind == "map":
            return self.mapping(depth - 1)
        return self.pick(*SCALARS)

    def mapping(self, depth: int = 2) -> dict[str, Json]:
        return {key: self.value(depth) for key in self.random.sample(["a", "b", "c", "0", ""], self.pick(0, 1, 2, 3))}

    def stream(self) -> str:
        """Lines of patches over few short paths, so that they meet; prose and damage between them."""
        lines = [self.stream_line() for _ in range(self.pick(3, 6, 10, 14))]
        if self.chance(0.3):  # upstream's copies share their insides with the original, so nothing may follow one
            lines.append(json.dumps({"op": "copy", "from": self.stream_path(), "path": self.stream_path()}))
        return "\n".join(lines)

    def stream_path(self) -> str:
        parts = [
            self.pick("a", "a", "b", "c", "0", "1", "-", "2", "", "1x", "~1") for _ in range(self.pick(1, 1, 2, 2, 3))
        ]
        return ("" if self.chance(0.1) else "/") + "/".join(parts)

    def stream_line(self) -> str:
        op = self.pick("add", "add", "add", "add", "replace", "remove", "move", "test", "exec")
        patch: dict[str, Json] = {"op": op, "path": self.stream_path()}
        if op in ("add", "replace") and self.chance(0.95):
            patch["value"] = self.value()
        if op == "move":
            # Upstream moves the whole document into itself and so makes it endless; that is refused here.
            patch["from"] = self.pick(self.stream_path(), self.stream_path(), "", None)
            if patch["from"] == "/":
                patch["from"] = "/a"
        if op == "test":
            return "" if self.chance(0.8) else json.dumps({**patch, "value": self.value(1)})
        if self.chance(0.02):
            patch["path"] = self.pick(5, None, ["a"])
        line = json.dumps(patch)
        damaged = self.pick(
            line[:-1],
            line + ",",
            "Here it is:",
            "```spec",
            "```",
            "",
            "[1]",
            "{}",
            '{"op": "add"}',
            "\ufeff" + line,
            "  " + line + " \r",
            '{"op": "", "path": "/a"}',
            "{'op': 'add'}",
            '{"op": "add", "path": "/a", "value": NaN}',
            '{"op":"add","path":"/__proto__/x","value":1}',
            line.replace('"op"', '"op": "add", "op"'),
        )
        return str(damaged) if self.chance(0.2) else line
