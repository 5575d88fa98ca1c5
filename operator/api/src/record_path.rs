//! The path of a record of a run: the position of a step, a turn of an agent, a call of a tool or a gate in the
//! journal.
//!
//! ```text
//! path    = segment *( "/" segment )
//! segment = name [ "#" visit ]         visit: 2, 3, …; the first visit has no number
//! name    = label                      a branch, a step, or a gate of a policy: `draft`, `north/draft`
//!         | ".turn-" 1…                a turn of an agent. The record of its first turn is that of the agent,
//!                                      and `.turn-1` has only calls beneath it
//!         | ".call-" 1…                a call of a turn; it has no record, what it runs and asks is beneath it
//!         | ".ask-" 2…                 the request for another answer, beneath a step
//!         | ".worker-" 0…              a worker of a pattern
//!         | part                       see PARTS
//!         | tool                       the step of a tool of a server, beneath a call: `crm.refund`
//! ```
//!
//! Below a step: `.start` (the gate before it), `.output` (about its answer), `.error` (about its failure), `.answer`
//! (the result of processing its answer), `.ask-2`, `.next` (the chosen edge) and turns. Below a call: `.check` (the
//! reason for its refusal), `.gate`, `.error`, gates of policies, and the step of the tool:
//! `handle/.turn-2/.call-1/pay/.start#2`. Below `.tools` are the catalogues of servers: `.tools/crm`, read again at
//! `.tools/crm#2`. The other parts are at the top. In a plan, which has no numbers, a turn is `.turn`, and the step of
//! a tool `.call/pay`.
//!
//! **Invariant:** a path keeps its text. Every text is a path: segments of other forms have the kind
//! [`SegmentKind::Other`], which are neither turns nor calls. Nothing is normalized, and nothing fails.

use std::{fmt, ops::Deref};

const TURN: &str = ".turn";
const CALL: &str = ".call";
const ASK: &str = ".ask";
const WORKER: &str = ".worker";

/// The names that are parts of a step, a call, a pattern or a run.
const PARTS: [&str; 19] = [
    ".answer",
    ".check",
    ".decomposition",
    ".error",
    ".evaluator",
    ".final",
    ".gate",
    ".next",
    ".orchestrator",
    ".output",
    ".outputs",
    ".producer",
    ".reduce-review",
    ".review",
    ".reviser",
    ".revision",
    ".router",
    ".start",
    ".tools",
];

/// The prefix of the paths of the steps of tools in a plan. It is the same for every call.
pub const PLANNED_CALLS: &str = ".call/";

/// The longest text between the step of an agent and the name of the step of its tool, and the visit of that step.
pub const LONGEST_CALL: &str = "/.turn-100#1000/.call-256/#1000";

/// The place of the catalogues of servers.
const CATALOGUES: &str = ".tools";

/// The path of a record, borrowed from its text. [`RecordPathBuf`] owns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPath<'p>(&'p str);

/// An owned path, built from another path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPathBuf(String);

/// A segment of a path: its name, and the number of the visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSegment<'p>(&'p str);

/// The form of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// A branch, a step, or a gate of a policy.
    Step,
    /// A turn of an agent; the first is 1.
    Turn(u32),
    /// A call of a turn; the first is 1.
    Call(u32),
    /// The request for another answer; the first is 2.
    Ask(u32),
    /// A worker; the first is 0.
    Worker(u32),
    /// A part of a step, a call, a pattern or a run, such as `.gate`.
    Part,
    /// A text of no other form.
    Other,
}

/// The place of a call: the path of its turn, and its number in the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace<'p> {
    /// The path of the turn.
    pub turn: RecordPath<'p>,
    /// The number of the call in the turn, from 1.
    pub number: u32,
}

impl<'p> PathSegment<'p> {
    /// Returns the text of the segment, with the number of its visit.
    #[must_use]
    pub fn as_str(self) -> &'p str {
        self.0
    }

    /// Returns the text of the segment without the number of its visit.
    #[must_use]
    pub fn name(self) -> &'p str {
        self.split().map_or(self.0, |(name, _)| name)
    }

    /// Returns the number of the visit, or 1 if the segment has no readable number.
    #[must_use]
    pub fn visit(self) -> i32 {
        self.split().and_then(|(_, visit)| visit.parse().ok()).unwrap_or(1)
    }

    /// Returns the name without visit and number, as plans have it: `.turn` for `.turn-2#3`.
    #[must_use]
    pub fn unnumbered(self) -> &'p str {
        let name = self.name();
        match name.rsplit_once('-') {
            Some((part, number)) if name.starts_with('.') && number.parse::<u32>().is_ok() => part,
            _ => name,
        }
    }

    /// Returns the form of the segment.
    #[must_use]
    pub fn kind(self) -> SegmentKind {
        if self.split().is_some_and(|(_, visit)| natural(visit).is_none_or(|visit| visit < 2)) {
            return SegmentKind::Other;
        }
        let name = self.name();
        let known = match self.split_number() {
            Some((TURN, number)) if number > 0 => Some(SegmentKind::Turn(number)),
            Some((CALL, number)) if number > 0 => Some(SegmentKind::Call(number)),
            Some((ASK, number)) if number > 1 => Some(SegmentKind::Ask(number)),
            Some((WORKER, number)) => Some(SegmentKind::Worker(number)),
            _ => None,
        };
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        known.unwrap_or(match name {
            name if PARTS.contains(&name) => SegmentKind::Part,
            name if !name.is_empty() && name.bytes().all(fits) => SegmentKind::Step,
            _ => SegmentKind::Other,
        })
    }

    /// Whether the segment is a part of a step, a call, a pattern or a run, and not a name that an author gave.
    #[must_use]
    pub fn is_part(self) -> bool {
        self.0.starts_with('.')
    }

    /// Whether the segment is a turn of an agent.
    #[must_use]
    pub fn is_turn(self) -> bool {
        self.turn().is_some()
    }

    /// Whether the segment is a call of a turn.
    #[must_use]
    pub fn is_call(self) -> bool {
        self.call().is_some()
    }

    /// Returns the number of the turn, or `None` for another segment.
    #[must_use]
    pub fn turn(self) -> Option<u32> {
        match self.kind_if(TURN)? {
            SegmentKind::Turn(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the number of the call, or `None` for another segment.
    #[must_use]
    pub fn call(self) -> Option<u32> {
        match self.kind_if(CALL)? {
            SegmentKind::Call(number) => Some(number),
            _ => None,
        }
    }

    /// Whether the segment is a request for another answer.
    #[must_use]
    pub fn is_ask(self) -> bool {
        matches!(self.kind_if(ASK), Some(SegmentKind::Ask(_)))
    }

    /// Whether the segment is the record of the processed answer of a step.
    #[must_use]
    pub fn is_answer(self) -> bool {
        self.name() == ".answer"
    }

    /// Whether the segment stands for all calls of a turn, as in a plan: `.call`.
    #[must_use]
    pub fn is_planned_call(self) -> bool {
        self.0 == CALL
    }

    /// Returns the form if the segment begins with `part`, without parsing any other segment.
    fn kind_if(self, part: &str) -> Option<SegmentKind> {
        self.0.starts_with(part).then(|| self.kind())
    }

    fn split_number(self) -> Option<(&'p str, u32)> {
        let (part, number) = self.name().rsplit_once('-')?;
        Some((part, natural(number)?))
    }

    fn split(self) -> Option<(&'p str, &'p str)> {
        self.0.rsplit_once('#')
    }
}

impl<'p> RecordPath<'p> {
    /// Returns the path with this text.
    #[must_use]
    pub fn new(text: &'p str) -> Self {
        Self(text)
    }

    /// Returns the text, as it is stored.
    #[must_use]
    pub fn as_str(self) -> &'p str {
        self.0
    }

    /// Returns the segments in their order; there is at least one.
    pub fn segments(self) -> impl DoubleEndedIterator<Item = PathSegment<'p>> {
        self.0.split('/').map(PathSegment)
    }

    /// Returns the last segment.
    #[must_use]
    pub fn last(self) -> PathSegment<'p> {
        PathSegment(self.0.rsplit_once('/').map_or(self.0, |(_, last)| last))
    }

    /// Returns the path above, or `None` at the top.
    #[must_use]
    pub fn parent(self) -> Option<RecordPath<'p>> {
        self.0.rsplit_once('/').map(|(parent, _)| RecordPath(parent))
    }

    /// Returns this path and all paths above it, the longest first.
    pub fn ancestors(self) -> impl Iterator<Item = RecordPath<'p>> {
        std::iter::successors(Some(self), |path| path.parent())
    }

    /// Whether the path is `place`, a visit of `place`, or below `place`. Every path is within an empty place, and
    /// every path with the prefix `place` is within a place that ends with `/`.
    #[must_use]
    pub fn is_within(self, place: &str) -> bool {
        let is_bounded =
            |rest: &str| place.is_empty() || place.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '#']);
        self.0.strip_prefix(place).is_some_and(is_bounded)
    }

    /// Returns the part of the path below `place`.
    #[must_use]
    pub fn beneath(self, place: &str) -> Option<RecordPath<'p>> {
        self.0.strip_prefix(place)?.strip_prefix('/').map(RecordPath)
    }

    /// Returns the path without the number of its own visit; those above stay: `loop#2/review` for `loop#2/review#3`.
    #[must_use]
    pub fn without_last_visit(self) -> RecordPath<'p> {
        match self.0.rsplit_once('#') {
            Some((base, visit)) if !visit.contains('/') => RecordPath(base),
            _ => self,
        }
    }

    /// Returns the path up to the first number of a visit, without the number: `loop` for `loop#2/review#3`.
    #[must_use]
    pub fn before_visits(self) -> RecordPath<'p> {
        RecordPath(self.0.split_once('#').map_or(self.0, |(place, _)| place))
    }

    /// Returns the path of the visit before this one, or `None` for the first: `review#2` for `review#3`, `review` for
    /// `review#2`.
    #[must_use]
    pub fn visit_before(self) -> Option<RecordPathBuf> {
        let visit = self.last().visit();
        (visit > 1).then(|| self.without_last_visit().at_visit(visit - 1))
    }

    /// Returns the path without the numbers of visits: `loop/review` for `loop#2/review#3`.
    #[must_use]
    pub fn without_visits(self) -> RecordPathBuf {
        self.map(PathSegment::name)
    }

    /// Returns the place in the plan, without visits and numbers: `.worker/.error` for `.worker-3#2/.error`.
    #[must_use]
    pub fn place(self) -> RecordPathBuf {
        self.map(PathSegment::unnumbered)
    }

    fn map(self, name: impl Fn(PathSegment<'p>) -> &'p str) -> RecordPathBuf {
        let mut mapped = String::with_capacity(self.0.len());
        for (at, segment) in self.segments().enumerate() {
            if at > 0 {
                mapped.push('/');
            }
            mapped.push_str(name(segment));
        }
        RecordPathBuf(mapped)
    }

    /// Whether the path is that of a call of an agent, which has no record of its own.
    #[must_use]
    pub fn is_call(self) -> bool {
        self.last().is_call()
    }

    /// Whether the path is that of a later turn of an agent, or of the calls of the first turn.
    #[must_use]
    pub fn is_turn(self) -> bool {
        self.last().is_turn()
    }

    /// Whether the path is that of a call of an agent, or below a call.
    #[must_use]
    pub fn is_in_call(self) -> bool {
        self.segments().skip(1).any(PathSegment::is_call)
    }

    /// Returns the path of the call directly above, as for the step of its tool and for its gates.
    #[must_use]
    pub fn call_above(self) -> Option<RecordPath<'p>> {
        self.parent().filter(|parent| parent.is_call())
    }

    /// Returns the turn of the call directly above: `handle/.turn-2` for `handle/.turn-2/.call-1/pay`.
    #[must_use]
    pub fn turn_above(self) -> Option<RecordPath<'p>> {
        self.call_above()?.parent()
    }

    /// Returns the innermost call around a record or a gate, or `None` if it is in no call of a turn.
    #[must_use]
    pub fn call_around(self) -> Option<CallPlace<'p>> {
        let call = self.ancestors().find(|path| path.is_call())?;
        let turn = call.parent().filter(|turn| turn.is_turn())?;
        Some(CallPlace { turn, number: call.last().call()? })
    }

    /// Returns the agent and the number of a turn, or `None` for another path.
    #[must_use]
    pub fn agent_of_turn(self) -> Option<(RecordPath<'p>, u32)> {
        Some((self.parent()?, self.last().turn()?))
    }

    /// Returns the path of each agent in whose turns this path is, the outermost first. If the path is a turn, the last
    /// one is the agent of the turn.
    pub fn agents_around(self) -> impl Iterator<Item = RecordPath<'p>> {
        let text = self.0;
        let is_turn = move |at: usize| {
            text.get(at + 1..).is_some_and(|rest| PathSegment(rest.split('/').next().unwrap_or(rest)).is_turn())
        };
        text.match_indices('/').filter(move |(at, _)| is_turn(*at)).filter_map(|(at, _)| text.get(..at).map(RecordPath))
    }

    /// Returns the path of the step of the innermost tool with the rest below it, as in a plan: `.call/pay/.start` for
    /// `handle/.turn/.call/pay/.start`; `None` outside of tools.
    #[must_use]
    pub fn place_of_tool(self) -> Option<RecordPath<'p>> {
        self.0.rfind(PLANNED_CALLS).and_then(|at| self.0.get(at..)).map(RecordPath)
    }

    /// Returns the step of the agent if the path is a turn or a request for another answer, also as in a plan. For
    /// other paths, returns the path itself.
    #[must_use]
    pub fn step_of_answer(self) -> RecordPath<'p> {
        let is_answer = |path: &RecordPath<'p>| [TURN, ASK].contains(&path.last().unnumbered());
        let mut path = self;
        while let Some(step) = path.parent().filter(|_| is_answer(&path)) {
            path = step;
        }
        path
    }

    /// Returns the path of a visit of this place. The first visit has the path of the place.
    #[must_use]
    pub fn at_visit(self, visit: impl Into<i64>) -> RecordPathBuf {
        match visit.into() {
            1 => self.to_buf(),
            visit => RecordPathBuf(format!("{}#{visit}", self.0)),
        }
    }

    /// Returns the path of a step or a gate with this name below this path.
    #[must_use]
    pub fn child(self, name: &str) -> RecordPathBuf {
        RecordPathBuf(format!("{}/{name}", self.0))
    }

    /// Returns the path of a step or a gate with this name beside this path.
    #[must_use]
    pub fn sibling(self, name: &str) -> RecordPathBuf {
        self.parent().map_or_else(|| RecordPathBuf(name.to_owned()), |parent| parent.child(name))
    }

    /// Returns the path of a turn of this agent, from 1.
    #[must_use]
    pub fn turn(self, number: impl Into<i64>) -> RecordPathBuf {
        self.numbered_child(TURN, number.into())
    }

    /// Returns the path of the call at a position of this turn. The call at position 0 has the number 1.
    #[must_use]
    pub fn call_at(self, position: usize) -> RecordPathBuf {
        RecordPathBuf(format!("{}/{CALL}-{}", self.0, position + 1))
    }

    /// Returns the path of all requests for another answer of this step, by which they are counted. It has no number.
    #[must_use]
    pub fn asks(self) -> RecordPathBuf {
        self.child(ASK)
    }

    /// Returns the path of a request for another answer of this step; the answer itself is the first.
    #[must_use]
    pub fn ask(self, number: impl Into<i64>) -> RecordPathBuf {
        self.numbered_child(ASK, number.into())
    }

    /// Returns the path of the gate of this call.
    #[must_use]
    pub fn gate(self) -> RecordPathBuf {
        self.child(".gate")
    }

    /// Returns the path of the record with the reason why this call was refused.
    #[must_use]
    pub fn check(self) -> RecordPathBuf {
        self.child(".check")
    }

    /// Returns the path of the gate before this step.
    #[must_use]
    pub fn start(self) -> RecordPathBuf {
        self.child(".start")
    }

    /// Returns the path of the gate about the answer of this step.
    #[must_use]
    pub fn output(self) -> RecordPathBuf {
        self.child(".output")
    }

    /// Returns the path of the gate about the failure of this step or call.
    #[must_use]
    pub fn error(self) -> RecordPathBuf {
        self.child(".error")
    }

    /// Returns the path of the record of the processed answer of this step.
    #[must_use]
    pub fn answer(self) -> RecordPathBuf {
        self.child(".answer")
    }

    /// Returns the path of the record of the edge that was chosen after this step.
    #[must_use]
    pub fn chosen_edge(self) -> RecordPathBuf {
        self.child(".next")
    }

    /// Returns an owned copy of the path.
    #[must_use]
    pub fn to_buf(self) -> RecordPathBuf {
        RecordPathBuf(self.0.to_owned())
    }

    fn numbered_child(self, part: &str, number: i64) -> RecordPathBuf {
        RecordPathBuf(format!("{}/{part}-{number}", self.0))
    }
}

impl RecordPathBuf {
    /// Returns the path of a catalogue of a server. The first catalogue that is read has visit 1.
    #[must_use]
    pub fn of_catalogue(server: &str, visit: i32) -> Self {
        RecordPath(CATALOGUES).child(server).path().at_visit(visit)
    }

    /// Returns the borrowed path.
    #[must_use]
    pub fn path(&self) -> RecordPath<'_> {
        RecordPath(&self.0)
    }

    /// Returns the text of the path.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for RecordPathBuf {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<RecordPathBuf> for String {
    fn from(path: RecordPathBuf) -> Self {
        path.0
    }
}

impl fmt::Display for RecordPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for RecordPathBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a decimal number as the engine writes it: digits only, and no leading zero.
fn natural(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests;
