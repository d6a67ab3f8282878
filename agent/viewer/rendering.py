"""HTML pages from the templates of a package.

A template is written by us; what it shows was written by models, and is never itself a template.
Every value that a template puts out is escaped, bounded in length and cleared of invisible
characters (`markup`), without a word in the template; in a quoted attribute the template says
`|attribute`, since a mark cannot stand there.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .text import attribute, markup


@cache
def templates_of(package: str) -> Environment:
    """Return the templates in the folder `templates` of a package.

    Args:
        package: the dotted name, such as "ludus.agent.viewer".
    """
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        keep_trailing_newline=True,
    )
    environment.filters["attribute"] = lambda value: Markup(attribute(str(value)))
    environment.filters["thousands"] = lambda value: f"{value:,}"
    return environment


def render(package: str, template: str, **values: object) -> str:
    """Return the template filled with values."""
    return templates_of(package).get_template(template).render(**values)


def asset(package: str, name: str) -> str:
    """Return a file beside the templates as it is, such as a style sheet."""
    environment = templates_of(package)
    assert environment.loader is not None
    # The loader returns the source of any file of the folder, template or not.
    return environment.loader.get_source(environment, name)[0]


def _safe(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(markup(str(value)))
