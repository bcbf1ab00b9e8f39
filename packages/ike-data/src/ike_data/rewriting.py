"""What of a template is written otherwise before it is compiled, so that filters of ours take part."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import nodes

WATCHED = "ike_watched"
"""Filter that every loop's items go through."""
JOINED = "ike_joined"
"""Filter that does what `~` does, which in jinja is C code."""


def rewritten(template: "nodes.Template") -> "nodes.Template":
    """With the filters in."""
    from jinja2 import nodes  # the sandbox has said it if there is none
    from jinja2.visitor import NodeTransformer

    class Rewriter(NodeTransformer):
        def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # jinja's own way to say it
            self.generic_visit(node)
            node.iter = nodes.Filter(node.iter, WATCHED, [], [], None, None, lineno=node.lineno)
            return node

        def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
            self.generic_visit(node)
            parts = nodes.List(node.nodes, lineno=node.lineno)
            return nodes.Filter(parts, JOINED, [], [], None, None, lineno=node.lineno)

    tree: nodes.Template = Rewriter().visit(template)
    return tree
