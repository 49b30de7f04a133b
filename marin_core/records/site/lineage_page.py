"""The page of the asset graph: as a drawing, and the same as lists."""

from marin_core.records.site import paths
from marin_core.records.site.content import SiteContent
from marin_core.records.site.lineage import Edge, draw, layer_of
from marin_core.records.site.render import Pages, SiteFile


def lineage_page(pages: Pages) -> SiteFile:
    content = pages.content
    edges = asset_edges(content)
    layers = layer_of(content.by_name, edges)
    made_of = {name: sorted(start for start, end in edges if end == name) for name in content.by_name}
    by_layer = [[name for name in layers if layers[name] == n] for n in range(max(layers.values(), default=-1) + 1)]
    return pages.page(
        "lineage.html.jinja",
        paths.LINEAGE,
        drawing=draw(content.by_name, edges),
        by_layer=by_layer,
        made_of=made_of,
        pages={name: _page(content, name) for name in content.by_name},
    )


def asset_edges(content: SiteContent) -> set[Edge]:
    """(name, name of what was made of it), of all artifacts whose inputs are still there."""
    return {
        (read.name, record.name)
        for record in content.artifacts
        for read in record.inputs.values()
        if read.name in content.by_name and read.name != record.name
    }


def _page(content: SiteContent, name: str) -> str:
    """Of an asset of one artifact its page, else the list of them."""
    records = content.by_name[name]
    return paths.artifact_page(name, records[0].fingerprint) if len(records) == 1 else paths.artifact_list(name)
