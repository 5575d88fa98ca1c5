//! The picture of a run: a graph with positions of its nodes and lines for its edges.
//!
//! **Invariant:** only the template writes markup, and escapes every text.

use std::fmt::Write as _;

use dagre::{
    EdgeLabel, LayoutOptions, NodeLabel, Point, RankDir,
    graph::{Graph as Placed, GraphOptions},
    layout,
};
use signoff_review::text::one_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    graph::{ENDS, Edge, Graph, Node},
    shapes::class,
};

/// The size of a step whose words fit one line.
const BOX: (f64, f64) = (186.0, 54.0);
/// The size of the beginning and the end.
const DOT: f64 = 18.0;
/// The most columns of the label of a step, and of the label of an edge or the words of a step.
const COLUMNS: (usize, usize) = (20, 22);
/// The height of a line of words.
const LINE: f64 = 16.0;
/// The width of a column of a label on an edge, and its height.
const LETTER: (f64, f64) = (6.6, 16.0);
/// The width above which a picture is also laid out from top to bottom.
const WIDE: f64 = 1400.0;
/// The space around the picture.
const MARGIN: f64 = 12.0;

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The width of the picture, in units of SVG.
    pub width: i64,
    /// The height of the picture, in units of SVG.
    pub height: i64,
    /// The steps and gates.
    pub boxes: Vec<Shape>,
    /// The lines between the steps and gates.
    pub ways: Vec<Way>,
    /// Whether a box is a link.
    pub has_links: bool,
}

/// A step, a gate, the beginning or the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The left edge.
    pub x: i64,
    /// The upper edge.
    pub y: i64,
    /// The outline as a path.
    pub outline: String,
    /// Whether the shape is the beginning or the end.
    pub is_dot: bool,
    /// Whether the shape is a gate.
    pub is_gate: bool,
    /// The label, shortened.
    pub label: String,
    /// The words below the label in lines, each with its vertical position.
    pub words: Vec<(i64, String)>,
    /// The whole label with its state, for the title.
    pub title: String,
    /// The tone of the state.
    pub tone: &'static str,
    /// The page of the Approval of a gate.
    pub href: Option<String>,
}

/// The line of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The line as an SVG path.
    pub path: String,
    /// The position of the condition, and the condition, shortened.
    pub label: Option<(i64, i64, String)>,
    /// The nodes and the whole condition, for the title.
    pub title: String,
}

impl Picture {
    /// Returns the picture of a graph, or `None` if the graph is too large.
    pub fn of(graph: &Graph) -> Option<Self> {
        if !graph.is_drawn() {
            return None;
        }
        let right = draw(graph, RankDir::LR);
        if right.width as f64 <= WIDE {
            return Some(right);
        }
        let down = draw(graph, RankDir::TB);
        Some(if down.width < right.width { down } else { right })
    }
}

/// Returns the width and the height of a node. `index`: its position in the graph.
fn node_size(node: &Node, index: usize) -> (f64, f64) {
    if index == ENDS.0 || index == ENDS.1 {
        return (DOT, DOT);
    }
    let further = break_lines(&node.words()).iter().skip(1).map(|_| LINE).sum::<f64>();
    (BOX.0, BOX.1 + further)
}

/// Returns the words of a step in lines, broken at commas.
fn break_lines(words: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in words.split_inclusive(", ") {
        match lines.last_mut().filter(|line| format!("{line}{part}").trim_end().width() <= COLUMNS.1) {
            Some(line) => line.push_str(part),
            None => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| shorten(line.trim_end(), COLUMNS.1)).collect()
}

/// Returns the layout of a graph: the positions of its nodes, and the points of the lines of its edges.
fn lay_out(graph: &Graph, direction: RankDir) -> Placed<NodeLabel, EdgeLabel> {
    let options = GraphOptions { directed: true, multigraph: true, compound: false };
    let mut placed = Placed::<NodeLabel, EdgeLabel>::with_options(options);
    // In the layout nodes are named by numbers, so no text of a run is a name there.
    for (index, node) in graph.nodes.iter().enumerate() {
        let (width, height) = node_size(node, index);
        placed.set_node(index.to_string(), Some(NodeLabel { width, height, ..NodeLabel::default() }));
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        let label = edge.when.as_ref().map(|when| shorten(when, COLUMNS.1));
        let (width, height) = label.map_or((0.0, 0.0), |label| (text_columns(&label) * LETTER.0, LETTER.1));
        let label = EdgeLabel { width, height, ..EdgeLabel::default() };
        placed.set_edge(edge.from.to_string(), edge.to.to_string(), Some(label), Some(&index.to_string()));
    }
    let options = LayoutOptions {
        rankdir: direction,
        nodesep: 26.0,
        ranksep: 34.0,
        edgesep: 14.0,
        marginx: MARGIN,
        marginy: MARGIN,
        ..LayoutOptions::default()
    };
    layout(&mut placed, Some(options));
    placed
}

/// Returns the picture of a graph whose ranks follow each other in a direction.
fn draw(graph: &Graph, direction: RankDir) -> Picture {
    let placed = lay_out(graph, direction);
    let mut picture = Picture::default();
    let mut corner = (0.0_f64, 0.0_f64);
    let mut extend_to = |x: f64, y: f64| corner = (corner.0.max(x), corner.1.max(y));
    for (index, node) in graph.nodes.iter().enumerate() {
        let Some(label) = placed.node(&index.to_string()) else { continue };
        let (width, height) = node_size(node, index);
        let (x, y) = (label.x.unwrap_or(0.0) - width / 2.0, label.y.unwrap_or(0.0) - height / 2.0);
        extend_to(x + width, y + height);
        picture.boxes.push(draw_node(node, index, rounded(x), rounded(y)));
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        let name = index.to_string();
        let Some(label) = placed.edge(&edge.from.to_string(), &edge.to.to_string(), Some(&name)) else { continue };
        label.points.iter().for_each(|point| extend_to(point.x, point.y));
        if let (Some((x, y)), Some(_)) = (label.x.zip(label.y), &edge.when) {
            extend_to(x + label.width / 2.0, y + label.height / 2.0);
        }
        picture.ways.push(draw_edge(edge, graph, label));
    }
    picture.has_links = picture.boxes.iter().any(|shape| shape.href.is_some());
    (picture.width, picture.height) = (rounded(corner.0 + MARGIN), rounded(corner.1 + MARGIN));
    picture
}

/// Returns the shape of a node at a position: a dot for the beginning and the end, a hexagon for a gate, or a box.
fn draw_node(node: &Node, index: usize, x: i64, y: i64) -> Shape {
    let is_dot = index == ENDS.0 || index == ENDS.1;
    let is_gate = node.kind == "gate";
    let (width, height) = node_size(node, index);
    let (w, h) = (rounded(width), rounded(height));
    let outline = if is_dot {
        format!("M{x} {}a9 9 0 1 0 18 0a9 9 0 1 0 -18 0Z", y + 9)
    } else if is_gate {
        // A gate has a point on both sides.
        let (left, right, middle, below) = (x + 14, x + w - 14, y + h / 2, y + h);
        format!("M{left} {y}H{right}L{} {middle}L{right} {below}H{left}L{x} {middle}Z", x + w)
    } else {
        format!(
            "M{} {y}h{}a8 8 0 0 1 8 8v{}a8 8 0 0 1 -8 8h-{}a8 8 0 0 1 -8 -8v-{}a8 8 0 0 1 8 -8Z",
            x + 8,
            w - 16,
            h - 16,
            w - 16,
            h - 16
        )
    };
    let whole_label = if node.id.is_empty() { node.kind.to_owned() } else { one_line(&node.id, 512) };
    let words = node.words();
    let baseline = |line: usize| y + 43 + rounded(LINE) * i64::try_from(line).unwrap_or_default();
    Shape {
        x,
        y,
        outline,
        is_dot,
        is_gate,
        label: shorten(&whole_label, COLUMNS.0),
        words: break_lines(&words).into_iter().enumerate().map(|(number, line)| (baseline(number), line)).collect(),
        title: if is_dot { whole_label } else { format!("{whole_label} ({}): {words}", node.kind) },
        tone: node.state.map_or("quiet", |state| class(state.tone())),
        href: node.href.clone(),
    }
}

/// Returns the line of an edge, with its condition beside it.
fn draw_edge(edge: &Edge, graph: &Graph, label: &EdgeLabel) -> Way {
    let name = |index: usize| {
        let node = &graph.nodes[index];
        if node.id.is_empty() { node.kind.to_owned() } else { one_line(&node.id, 253) }
    };
    let when = edge.when.as_ref().map(|when| format!(": {when}")).unwrap_or_default();
    let position = label.x.zip(label.y).map(|(x, y)| (rounded(x), rounded(y) + 4));
    Way {
        path: curve(&label.points),
        label: position.zip(edge.when.as_ref()).map(|((x, y), when)| (x, y, shorten(when, COLUMNS.1))),
        title: format!("{} to {}{when}", name(edge.from), name(edge.to)),
    }
}

/// Returns a smooth line through the midpoints between points.
fn curve(points: &[Point]) -> String {
    let Some((first, last)) = points.first().zip(points.last()) else { return String::new() };
    let mut path = format!("M{} {}", rounded(first.x), rounded(first.y));
    for pair in points.get(1..).unwrap_or_default().windows(2) {
        let middle = (f64::midpoint(pair[0].x, pair[1].x), f64::midpoint(pair[0].y, pair[1].y));
        let _ =
            write!(path, "Q{} {} {} {}", rounded(pair[0].x), rounded(pair[0].y), rounded(middle.0), rounded(middle.1));
    }
    let _ = write!(path, "L{} {}", rounded(last.x), rounded(last.y));
    path
}

/// Returns a coordinate as a whole number; 0 if it is not a number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a picture is thousands of points wide; what is no number becomes 0"
)]
fn rounded(coordinate: f64) -> i64 {
    coordinate.round() as i64
}

/// Returns the number of columns of a text, as a factor of a width.
fn text_columns(text: &str) -> f64 {
    u32::try_from(text.width()).map_or(0.0, f64::from)
}

/// Returns a text of at most `most` columns. A longer text is cut and ends with an ellipsis.
fn shorten(text: &str, most: usize) -> String {
    let text = one_line(text, 512);
    if text.width() <= most {
        return text;
    }
    let mut room = most.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= room;
        room = room.saturating_sub(width);
        fits
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}
