"""How every page looks, and the script that draws its charts: `page.css` and `page.js`.

Charts keep their notes in the margin on a laptop and below them on a phone. Tables scroll in their
own box, the page never sideways. Dark paper is for screens only: printed pages are always light.
"""

from importlib.resources import files

STYLE = "\n" + files("flatout.pages").joinpath("page.css").read_text(encoding="utf-8")
SCRIPT = "\n" + files("flatout.pages").joinpath("page.js").read_text(encoding="utf-8")
