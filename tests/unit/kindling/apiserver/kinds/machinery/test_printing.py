"""Tables: cells by field, by function, or as whole rows."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.printing import NAME, Table, name_as, name_of, plain, wide

POD = {"metadata": {"name": "x"}, "spec": {"replicas": 0, "class": ""}}


def test_columns_read_fields_by_their_path() -> None:
    table = Table(
        NAME,
        plain("Replicas", "spec.replicas", absent=1, kind="integer"),
        plain("Ready", "status.ready", absent=0, kind="integer"),
        plain("Class", "spec.class"),
        wide("Shown Class", "spec.class", empty="<none>"),
        wide("Node", "spec.node.name", empty="<none>"),
    )
    assert table.cells(POD) == ["x", 0, 0, "", "<none>", "<none>"]
    assert [column.priority for column in table.columns] == [0, 0, 0, 0, 1, 1]
    assert table.columns[1].to_json()["type"] == "integer"


def test_a_column_may_be_computed_and_the_name_extended() -> None:
    table = Table(name_as(lambda obj: name_of(obj) + " (default)"), plain("Kind", lambda obj: "pod"))
    assert table.cells(POD) == ["x (default)", "pod"]
    assert table.columns[0].format == "name"


def test_rows_whose_cells_depend_on_each_other_are_filled_as_a_whole() -> None:
    table = Table(NAME, plain("Both"), fill=lambda obj: [name_of(obj), len(obj)], condition=lambda obj: [obj])
    assert table.cells(POD) == ["x", 2]
    assert table.conditions(POD) == [POD]
    assert Table(NAME).conditions(POD) == []
