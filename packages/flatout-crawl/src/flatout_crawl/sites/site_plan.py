"""The plan of a made-up site: which pages there are, what they are about, and which links stand on
them.

Most targets stand behind gateways: a guide in some list leads to a gateway, whose anchor says
nothing, and the gateway lists targets, most of whose anchors say nothing either. The others stand
in lists of their topic. Around them: pages of other topics, guides and gateways to nothing, decoys
whose anchors promise what the page does not keep, copies, redirects, errors, and a calendar without
end. It plans in paths; hosts and HTML are others' business.
"""

from random import Random

from flatout_crawl.sites.site_blueprint import (
    FIXED,
    BlockKind,
    Blueprint,
    Leaf,
    LinkBlock,
    PageLink,
    PagePlan,
    SiteSizes,
    drawn_sizes,
)
from flatout_crawl.sites.site_style import NEUTRAL, Style, draw_style
from flatout_crawl.sites.site_words import Vocabulary, draw_vocabulary, slug

ELSEWHERE = "http://elsewhere.lab/"
CALENDAR = "/calendar/2025/03/"
RATES = {"target": 0.11, "gateway": 0.035, "guide": 0.025, "topic": 0.008, "other": 0.0005}


def plan_site(seed: int, pages: int, target_share: float, hazards: bool) -> Blueprint:
    """Plan the site of a seed: its pages, links and targets."""
    rng = Random(f"flatout site {seed} {pages} {target_share} {hazards}")
    style = draw_style(rng)
    sizes = drawn_sizes(rng, pages, target_share, style.per_page)
    return Planning(
        rng=rng,
        style=style,
        words=draw_vocabulary(rng, sizes.topics),
        sizes=sizes,
        hazards=hazards,
    ).plan()


class Planning:
    """Draws a site, list by list."""

    def __init__(
        self, rng: Random, style: Style, words: Vocabulary, sizes: SiteSizes, hazards: bool
    ) -> None:
        self.rng, self.style, self.words, self.sizes, self.hazards = (
            rng,
            style,
            words,
            sizes,
            hazards,
        )
        self.site = Blueprint(style, words)
        self.taken: set[str] = set()
        self.number = rng.randint(100, 5_000)
        names = [words.title(rng, k, keywords=int(k == words.topic)) for k in range(sizes.topics)]
        self.sections = [self.free(f"/{slug(name)}/") for name in names]
        self.guides: set[str] = set()
        self.shelves: list[list[Leaf]] = [[] for _ in range(sizes.topics * sizes.shelves)]

    def plan(self) -> Blueprint:
        """Leaves first, then what leads to them."""
        self.fill_shelves()
        for real in (True, False):
            for k in range(self.sizes.gateways):
                self.add_gateway(k, real)
        if self.hazards:
            self.add_hazards()
        self.add_shelves()
        self.add_front()
        return self.site

    # --- leaves -----------------------------------------------------------------------------------

    def fill_shelves(self) -> None:
        """Targets and other leaves of the topic, decoys and leaves of other topics, each on a shelf
        of its topic.
        """
        rng, sizes, own = self.rng, self.sizes, self.words.topic
        for _ in range(sizes.scattered):
            leaf = self.leaf(own, "target", keywords=int(rng.random() < 0.7))
            self.site.targets.add(leaf.entry.path)
            rng.choice(self.shelves_of(own)).append(leaf)
        decoys = round(1.5 * sizes.scattered)
        for k in range(sizes.leaves):
            topic = rng.randrange(sizes.topics)
            decoy = k < decoys
            topic = (topic + 1) % sizes.topics if decoy and topic == own else topic
            keywords = rng.randint(1, 2) if decoy else int(topic == own and rng.random() < 0.25)
            leaf = self.leaf(topic, "topic" if topic == own or decoy else "other", keywords)
            if decoy:
                self.site.decoys.add(leaf.entry.path)
            rng.choice(self.shelves_of(topic)).append(leaf)
        for shelf in self.shelves:
            rng.shuffle(shelf)
        for shelf in self.shelves:
            for leaf in shelf:
                self.add_leaf(leaf, shelf)

    def shelves_of(self, topic: int) -> list[list[Leaf]]:
        """The lists of leaves that belong to a topic."""
        return self.shelves[topic * self.sizes.shelves : (topic + 1) * self.sizes.shelves]

    def leaf(self, topic: int, rate: str, keywords: int, telling: bool = True) -> Leaf:
        """A page with a title; where it is not telling, neither anchor nor URL nor blurb give it
        away.
        """
        rng = self.rng
        title = self.words.title(rng, topic, keywords)
        self.number += rng.randint(1, 9)
        if not telling:
            path = self.free(
                f"{self.sections[topic]}{self.style.names['archive']}/{self.number}{self.style.suffix}"
            )
            return Leaf(
                PageLink(path, f"No. {self.number}", f"{rng.randint(2, 90)} pages"),
                topic,
                RATES[rate],
                title,
            )
        blurb_rate = 0.06 if keywords or rate == "target" else RATES[rate]
        blurb = self.words.sentence(rng, topic, rng.randint(4, 9), blurb_rate)
        return Leaf(PageLink(self.leaf_path(topic, title), title, blurb), topic, RATES[rate], title)

    def leaf_path(self, topic: int, title: str) -> str:
        """A URL after the fashion of the site."""
        section, style = self.sections[topic], self.style
        if style.urls == "folders":
            return self.free(f"{section}{slug(title)}{style.suffix}")
        if style.urls == "flat":
            return self.free(f"/p/{self.number}-{slug(title)}")
        return self.free(
            f"{section}{self.number}{style.suffix}"
            if style.urls == "numbers"
            else f"/view?id={self.number}"
        )

    def add_leaf(self, leaf: Leaf, near: list[Leaf], crumbs: tuple[PageLink, ...] = ()) -> None:
        """Plan a leaf; beside its text are links to a few others of its list."""
        others = self.rng.sample(near, min(len(near), 4))
        aside = tuple(
            PageLink(one.entry.path, one.entry.anchor) for one in others if one is not leaf
        )[:3]
        crumbs = crumbs or (PageLink(self.sections[leaf.topic], "Up"),)
        words = self.rng.randint(120, 420)
        self.put(
            PagePlan(
                path=leaf.entry.path,
                title=leaf.title,
                topic=leaf.topic,
                rate=leaf.rate,
                words=words,
                blocks=(),
                aside=aside,
                crumbs=crumbs,
            )
        )

    # --- gateways ---------------------------------------------------------------------------------

    def add_gateway(self, k: int, real: bool) -> None:
        """A guide on some shelf, the gateway behind it, and the leaves behind that."""
        rng, sizes, own = self.rng, self.sizes, self.words.topic
        topic = own if real else (own + 1 + rng.randrange(sizes.topics - 1)) % sizes.topics
        size = sizes.clustered // sizes.gateways + int(k < sizes.clustered % sizes.gateways)
        leaves = []
        for _ in range(size):
            telling = rng.random() < self.style.telling
            leaves.append(
                self.leaf(
                    topic, "target" if real else "other", int(real and rng.random() < 0.7), telling
                )
            )
        self.number += 1
        name = rng.choice(NEUTRAL)
        gateway = self.free(f"{self.sections[topic]}{slug(name)}-{self.number}{self.style.suffix}")
        crumbs = (PageLink(self.sections[topic], "Up"),)
        for leaf in leaves:
            self.add_leaf(leaf, leaves, crumbs)
        self.add_list(
            gateway,
            title=name,
            topic=topic,
            rate="gateway" if real else "other",
            leaves=leaves,
            kind=self.archive_kind(real),
            crumbs=crumbs,
        )
        if real:
            self.site.gateways[gateway] = [leaf.entry.path for leaf in leaves]
            self.site.targets.update(self.site.gateways[gateway])
        self.add_guide(PageLink(gateway, f"{name} {k + 1}"), topic, real)

    def archive_kind(self, real: bool) -> BlockKind:
        """How a gateway lists its leaves."""
        return "archive" if real or self.style.same_archive_path else "list"

    def add_guide(self, gateway: PageLink, topic: int, real: bool) -> None:
        """The page that leads to a gateway; some guides stand on shelves of other topics."""
        rng = self.rng
        title = self.words.title(rng, topic, int(real and rng.random() < 0.3))
        blurb = self.words.sentence(rng, topic, 8, 0.15 if real else RATES["other"])
        entry = PageLink(self.leaf_path(topic, title), title, blurb)
        shelf = rng.choice(
            self.shelves_of(topic) if rng.random() < 0.6 else [one for one in self.shelves if one]
        )
        some = [leaf.entry for leaf in rng.sample(shelf, min(2, len(shelf)))]
        links = [PageLink(one.path, one.anchor) for one in some] + [gateway]
        rate = RATES["guide" if real else "other"]
        box = LinkBlock("box", "", tuple(links))
        crumbs = (PageLink(self.sections[topic], "Up"),)
        self.put(
            PagePlan(
                path=entry.path,
                title=title,
                topic=topic,
                rate=rate,
                words=rng.randint(120, 300),
                blocks=(box,),
                aside=(),
                crumbs=crumbs,
            )
        )
        shelf.insert(rng.randrange(len(shelf) + 1), Leaf(entry, topic, rate, title))
        self.guides.add(entry.path)

    # --- lists ------------------------------------------------------------------------------------

    def add_shelves(self) -> None:
        """Every shelf as a list of several pages, every topic as a page of shelves."""
        for topic, section in enumerate(self.sections):
            own = topic == self.words.topic
            shelves = []
            for leaves in self.shelves_of(topic):
                title = self.words.title(self.rng, topic, int(own and self.rng.random() < 0.6))
                path = self.free(f"{section}{slug(title)}/")
                shelves.append(
                    PageLink(
                        path, title, self.words.sentence(self.rng, topic, 8, 0.06 if own else 0.001)
                    )
                )
                crumbs = (PageLink(section, "Up"),)
                self.add_list(
                    path,
                    title=title,
                    topic=topic,
                    rate="topic" if own else "other",
                    leaves=leaves,
                    kind="list",
                    crumbs=crumbs,
                )
            rate = RATES["guide" if own else "other"]
            self.put(
                PagePlan(
                    path=section,
                    title=self.section_title(topic),
                    topic=topic,
                    rate=rate,
                    words=80,
                    blocks=(LinkBlock("list", "Sections", tuple(shelves)),),
                )
            )

    def add_list(
        self,
        path: str,
        title: str,
        topic: int,
        rate: str,
        leaves: list[Leaf],
        kind: BlockKind,
        crumbs: tuple[PageLink, ...],
    ) -> None:
        """A list on as many pages as it needs."""
        per = self.style.per_page
        count = max(-(-len(leaves) // per), 1)
        paths = [path] + [self.free(self.further(path, k)) for k in range(2, count + 1)]
        for k, page in enumerate(paths):
            shown = tuple(leaf.entry for leaf in leaves[k * per : (k + 1) * per])
            blocks = [LinkBlock(kind, "Contents", shown)]
            if count > 1:
                blocks.append(LinkBlock("pager", "", self.pager(paths, k)))
            text = title if k == 0 else f"{title} page {k + 1}"
            self.put(
                PagePlan(
                    path=page,
                    title=text,
                    topic=topic,
                    rate=RATES[rate],
                    words=60,
                    blocks=tuple(blocks),
                    aside=(),
                    crumbs=crumbs,
                )
            )

    def further(self, path: str, page: int) -> str:
        """The URL of a further page of a list."""
        return (
            f"{path}?page={page}"
            if self.style.paged == "query"
            else f"{path.rstrip('/')}/page/{page}/"
        )

    def pager(self, paths: list[str], k: int) -> tuple[PageLink, ...]:
        """Links to the other pages of a list."""
        if self.style.numbered_pager:
            return tuple(PageLink(path, str(n + 1)) for n, path in enumerate(paths) if n != k)
        near = [(k - 1, "Previous page"), (k + 1, "Next page")]
        return tuple(PageLink(paths[n], text) for n, text in near if 0 <= n < len(paths))

    # --- hazards ----------------------------------------------------------------------------------

    def add_hazards(self) -> None:
        """Redirects, copies, errors, slow and forbidden pages, put on shelves among the leaves."""
        rng, site = self.rng, self.site
        leaves = [(shelf, leaf) for shelf in self.shelves for leaf in shelf]
        share = max(len(leaves) // 50, 2)
        for n, (shelf, leaf) in enumerate(rng.sample(leaves, min(share, len(leaves)))):
            hops = [self.free(f"/go/{self.number + 10 * n + hop}") for hop in range(1 + n % 3)]
            site.redirects.update(zip(hops, [*hops[1:], leaf.entry.path], strict=True))
            self.advertise(shelf, leaf.entry._replace(path=hops[0]))
        for n, (shelf, leaf) in enumerate(rng.sample(leaves, min(share, len(leaves)))):
            copy = self.free(
                f"{leaf.entry.path}{'&' if '?' in leaf.entry.path else '?'}ref={n + 1}"
            )
            site.copies[copy] = leaf.entry.path
            self.advertise(shelf, leaf.entry._replace(path=copy))
        for n in range(2 * share):
            topic = rng.randrange(self.sizes.topics)
            dead = self.leaf(topic, "other", 0)
            site.errors[dead.entry.path] = (404, 500, 404, 410)[n % 4]
            self.advertise(rng.choice(self.shelves_of(topic)), dead.entry)
        first, second, out = (
            self.free("/go/round"),
            self.free("/go/round-again"),
            self.free("/go/partner"),
        )
        site.redirects.update({first: second, second: first, out: ELSEWHERE})
        for path in (first, out):
            self.advertise(rng.choice(self.shelves), PageLink(path, self.words.title(rng, 0)))
        self.put(
            PagePlan(path="/private/", title="Members", topic=self.words.topic, rate=0.0, words=50)
        )
        site.private.add("/private/")
        for n in range(3):
            hidden = self.leaf(self.words.topic, "other", 0)
            entry = hidden.entry._replace(path=self.free(f"/private/{self.number + n}"))
            self.put(
                PagePlan(
                    path=entry.path,
                    title=hidden.title,
                    topic=hidden.topic,
                    rate=hidden.rate,
                    words=100,
                )
            )
            site.private.add(entry.path)
            self.advertise(rng.choice(self.shelves_of(self.words.topic)), entry)
        site.slow = {
            leaf.entry.path: rng.uniform(0.2, 2.0) for _, leaf in rng.sample(leaves, share)
        }

    def advertise(self, shelf: list[Leaf], entry: PageLink) -> None:
        """Put a link on a shelf whose page, if there is one, is planned elsewhere."""
        shelf.insert(self.rng.randrange(len(shelf) + 1), Leaf(entry, 0, 0.0, ""))

    # --- front ------------------------------------------------------------------------------------

    def add_front(self) -> None:
        """The home page, the pages that every site has, and the links that every page has."""
        rng = self.rng
        sections = [PageLink(path, self.section_title(k)) for k, path in enumerate(self.sections)]
        fixed = [
            PageLink(self.free(f"/{name}{self.style.suffix}"), name.capitalize()) for name in FIXED
        ]
        more = [
            PageLink(CALENDAR, "Events"),
            PageLink("/private/", "Members"),
            PageLink("/login", "Sign in", follow=False),
        ]
        self.site.nav = (
            PageLink("/", "Home"),
            *sections,
            *(more if self.hazards else ()),
            *fixed[:2],
        )
        self.site.footer = (*fixed[1:], PageLink(ELSEWHERE, "Partner"))
        topic = rng.randrange(self.sizes.topics)
        for entry in fixed:
            self.put(
                PagePlan(
                    path=entry.path,
                    title=entry.anchor,
                    topic=topic,
                    rate=0.0,
                    words=rng.randint(60, 200),
                )
            )
        news = [
            leaf.entry
            for shelf in self.shelves
            for leaf in shelf[:1]
            if leaf.entry.path not in self.guides
        ]
        rng.shuffle(news)
        blocks = (LinkBlock("box", "", tuple(PageLink(one.path, one.anchor) for one in news[:4])),)
        self.put(
            PagePlan(
                path="/", title="Home", topic=topic, rate=RATES["other"], words=90, blocks=blocks
            )
        )

    def section_title(self, topic: int) -> str:
        """The name of a topic, as its URL has it."""
        return self.sections[topic].strip("/").replace("-", " ").capitalize()

    def free(self, path: str) -> str:
        """This path, or one like it that is not taken."""
        made, n = path, 1
        while made in self.taken:
            n += 1
            made = f"{path.rstrip('/')}-{n}{'/' if path.endswith('/') else ''}"
        self.taken.add(made)
        return made

    def put(self, plan: PagePlan) -> None:
        """Add the plan of a page to the site."""
        self.site.plans[plan.path] = plan
