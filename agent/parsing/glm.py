"""The format of GLM-4.5 and later: the tool's name, then a pair of tags for each argument.

    <tool_call>search
    <arg_key>query</arg_key>
    <arg_value>x</arg_value>
    </tool_call>

How values are read is said in `tag_arguments`.
"""

from __future__ import annotations

import re

from .tag_arguments import TaggedFormat, TagGrammar, unwrapped

_GRAMMAR = TagGrammar(
    beginning=re.compile(r"<tool_call>"),
    function=re.compile(
        r"<tool_call>\s*(?P<name>[^\s<>{}\[\]]{1,256})\s*(?=<arg_key>|</tool_call>|\Z)"
    ),
    parameter=re.compile(r"<arg_key>(?P<key>[^<>]{0,256})</arg_key>\s*<arg_value>"),
    closing=re.compile("</arg_value>"),
    end=re.compile(r"</tool_call>"),
    follows=re.compile(r"\s*(?:<arg_key>|</tool_call>|<tool_call>|\Z)"),
    inner=unwrapped,
    form="a call is <tool_call>name, then <arg_key>key</arg_key> and <arg_value>value</arg_value> "
    "for each argument",
)


class Glm4Format(TaggedFormat):
    """Calls of GLM-4.5, 4.6 and 4.7."""

    name = "glm4"
    grammar = _GRAMMAR
    call_form = "<tool_call>{name}\n{arguments}</tool_call>"
    argument_form = "<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n"
    between = "\n"
