"""No pickle, anywhere; nothing that runs code because a file says so."""

import ast

PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
OBJECT_COLLECTIVES = ("_object", "_object_list")  # all_gather_object, broadcast_object_list: pickles on the wire


def calls(tree: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_no_file_imports_a_pickle(sources) -> None:
    assert [s.path for s in sources for i in s.imports() if set(i.module.split(".")) & PICKLES] == []


def test_no_file_uses_torch_s_pickles(sources) -> None:
    used = [
        f"{source.path}:{node.lineno}: {ast.unparse(node)}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and (ast.unparse(node) in {"torch.load", "torch.save"} or node.attr.endswith(OBJECT_COLLECTIVES))
    ]
    assert used == []


def test_no_call_turns_pickles_or_foreign_code_on(sources) -> None:
    used = [
        f"{source.path}:{call.lineno}: {keyword.arg}={ast.unparse(keyword.value)}"
        for source in sources
        for call in calls(source.tree)
        for keyword in call.keywords
        if keyword.arg in {"allow_pickle", "trust_remote_code"} and ast.unparse(keyword.value) == "True"
    ]
    assert used == []


def test_no_file_evaluates_text(sources) -> None:
    used = [
        f"{source.path}:{call.lineno}: {ast.unparse(call)}"
        for source in sources
        for call in calls(source.tree)
        if isinstance(call.func, ast.Name) and call.func.id in {"eval", "exec"}
    ]
    assert used == []


def test_objectives_do_not_ask_which_rank_they_are_on(sources) -> None:
    asked = [
        f"{source.path}:{node.lineno}: {ast.unparse(node)}"
        for source in sources
        if source.package == "ike_tasks"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare) and ast.unparse(node.left).rpartition(".")[2] == "rank"
    ]
    assert asked == []
