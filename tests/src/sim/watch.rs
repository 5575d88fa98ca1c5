//! Watches: the history as a stream of lines, from any version that is still kept, with the faults of streams.
//!
//! **Invariant:** a watch holds no lock while it waits.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ApiServer;
use super::faults::EVERYONE;
use super::life::{Incarnation, never};
use super::log::Request;
use super::projection::Projection;
use super::select::Filter;
use super::status::Refusal;
use super::store::{Change, Resource, Store};
use super::watch_feed::Listener;

/// The ways in which a watch ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The stream ends as after a timeout.
    Closed,
    /// The connection breaks.
    Reset,
    /// The stream sends 410 Expired and ends.
    Gone,
}

/// The faults of streams, and the endings so far.
#[derive(Default)]
pub(crate) struct Streams {
    rules: Vec<(String, StreamRule)>,
    /// Kinds of which no events are sent, each with the actor.
    pub(crate) held_kinds: Vec<(String, Resource)>,
    endings: Vec<(String, Ending)>,
    pub(crate) open: usize,
    pub(crate) opened: usize,
}

/// The faults of an actor's watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamRule {
    pub(crate) delay: Duration,
    pub(crate) duplicate: bool,
    pub(crate) held: bool,
    pub(crate) close_after: Option<u64>,
    pub(crate) lose: u64,
}

impl Streams {
    /// Returns the rule of an actor, and creates it if it is missing; an actor's own rule hides the rule for all.
    pub(crate) fn rule(&mut self, actor: &str) -> &mut StreamRule {
        let index = self.rules.iter().position(|(name, _)| name == actor).unwrap_or_else(|| {
            self.rules.push((actor.to_owned(), StreamRule::default()));
            self.rules.len() - 1
        });
        &mut self.rules[index].1
    }

    pub(crate) fn end(&mut self, actor: &str, ending: Ending) {
        self.endings.push((actor.to_owned(), ending));
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.held_kinds.clear();
    }

    fn rule_for(&mut self, actor: &str) -> Option<&mut StreamRule> {
        let position = |wanted: &str| self.rules.iter().position(|(name, _)| name == wanted);
        let index = position(actor).or_else(|| position(EVERYONE))?;
        self.rules.get_mut(index).map(|(_, rule)| rule)
    }

    fn ending_since(&self, from: usize, actor: &str) -> Option<Ending> {
        self.endings.iter().skip(from).find(|(name, _)| name == actor || name == EVERYONE).map(|(_, ending)| *ending)
    }
}

/// A watch that was requested, as the store was at that moment.
pub(crate) struct Opening {
    filter: Filter,
    projection: Projection,
    /// The lines before the first live change.
    first: VecDeque<Bytes>,
    /// The index of the next change to send.
    position: usize,
    timeout: Option<Duration>,
    /// The kind and apiVersion for bookmarks, if the client accepts them.
    bookmarks: Option<(String, String)>,
    /// Whether the request was refused, which a watch reports in its stream.
    refused: bool,
}

impl Opening {
    pub(crate) fn read(store: &Store, request: &Request, filter: Filter) -> Result<Self, Refusal> {
        let projection = Projection::of(request);
        let asked = request.parameter("resourceVersion");
        let from = match asked {
            "" | "0" => None,
            asked => Some(
                asked
                    .parse::<u64>()
                    .map_err(|_| Refusal::bad_request(format!("invalid resource version: {asked:?}")))?,
            ),
        };
        let streaming_list = request.flag("sendInitialEvents");
        let bookmarks = request.flag("allowWatchBookmarks");
        if streaming_list && (!bookmarks || request.parameter("resourceVersionMatch") != "NotOlderThan") {
            let message = "sendInitialEvents needs allowWatchBookmarks and resourceVersionMatch=NotOlderThan";
            return Err(Refusal::new(422, "Invalid", message));
        }
        let kind = (projection.kind(store, request), projection.api_version(request).to_owned());
        let mut opening = Self {
            filter,
            projection,
            first: VecDeque::new(),
            position: store.position_after(from.unwrap_or(store.number())),
            timeout: request.parameter("timeoutSeconds").parse().ok().map(Duration::from_secs),
            bookmarks: bookmarks.then_some(kind),
            refused: false,
        };
        match from {
            Some(from) if !streaming_list && from < store.oldest() => {
                let refusal = Refusal::expired(asked, store.oldest());
                opening.first.push_back(line("ERROR", refusal.body().to_string().as_bytes()));
                opening.refused = true;
            }
            Some(_) if !streaming_list => {}
            _ => {
                opening.position = store.position_after(store.number());
                let selected = store.list(&opening.filter.resource, opening.filter.namespace.as_deref());
                let selected = selected.filter(|(_, version)| opening.filter.selects(version));
                opening.first = selected.map(|(_, version)| line("ADDED", &projection.bytes(version))).collect();
                if streaming_list {
                    let done = json!({"k8s.io/initial-events-end": "true"});
                    opening.first.extend(opening.bookmark(store.number(), Some(done)));
                }
            }
        }
        Ok(opening)
    }

    fn bookmark(&self, number: u64, annotations: Option<Value>) -> Option<Bytes> {
        let (kind, api_version) = self.bookmarks.as_ref()?;
        let mut metadata = json!({"resourceVersion": number.to_string(), "creationTimestamp": null});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        Some(line("BOOKMARK", object.to_string().as_bytes()))
    }

    /// Returns the line of a change, or `None` if this watch does not send the change. An object that no longer matches
    /// is sent as deleted, and an object that begins to match is sent as added.
    fn line_of(&self, change: &Change) -> Option<Bytes> {
        if !self.filter.is_about(&change.key) {
            return None;
        }
        let before = change.before.as_ref().is_some_and(|version| self.filter.selects(version));
        let after = !change.deleted && self.filter.selects(&change.after);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(line(kind, &self.projection.bytes(&change.after)))
    }
}

/// An open watch of one client, which yields the lines of its stream.
pub(crate) struct Watching {
    opening: Opening,
    server: ApiServer,
    life: Incarnation,
    changes: Listener,
    /// The number of endings before the watch began.
    endings: usize,
    delivered: u64,
    until: Option<Instant>,
    is_over: bool,
}

/// The next step of a watch.
enum NextStep {
    Line(Bytes),
    End(Ending),
    Timeout,
    Wait(Option<Instant>),
    Dead,
}

impl Watching {
    pub(crate) fn start(opening: Opening, server: &ApiServer, life: &Incarnation) -> Self {
        let until = opening.timeout.map(|timeout| Instant::now() + timeout);
        let endings = server.with(|state| {
            state.streams.open += 1;
            state.streams.opened += 1;
            state.streams.endings.len()
        });
        let changes = server.listen();
        Self {
            opening,
            server: server.clone(),
            life: life.clone(),
            changes,
            endings,
            delivered: 0,
            until,
            is_over: false,
        }
    }

    /// Returns the next piece of the stream, or `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            self.changes.mark_seen();
            if self.is_over {
                return None;
            }
            let wait = match self.next_step() {
                NextStep::Line(line) => return Some(Ok(line)),
                NextStep::Timeout => {
                    self.is_over = true;
                    let number = self.server.with(|state| {
                        let next = state.api.store.change(self.opening.position);
                        // A bookmark covers the events that were sent, not those in flight.
                        next.map_or(state.api.store.number(), |change| change.number - 1)
                    });
                    return self.opening.bookmark(number, None).map(Ok);
                }
                NextStep::End(ending) => {
                    self.is_over = true;
                    return match ending {
                        Ending::Closed => None,
                        Ending::Reset => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
                        Ending::Gone => Some(Ok(line("ERROR", Refusal::expired("0", 1).body().to_string().as_bytes()))),
                    };
                }
                NextStep::Wait(wait) => wait,
                NextStep::Dead => never().await,
            };
            let timer = async {
                match wait {
                    Some(instant) => tokio::time::sleep_until(instant).await,
                    None => never().await,
                }
            };
            // `biased` polls in a fixed order, so that every run is the same.
            tokio::select! {
                biased;
                () = self.changes.changed() => {}
                () = timer => {}
            }
        }
    }

    fn next_step(&mut self) -> NextStep {
        let Self { opening, server, life, endings, delivered, until, .. } = self;
        if !life.is_alive() {
            return NextStep::Dead;
        }
        server.with(|state| {
            let actor = life.actor();
            let mut no_faults = StreamRule::default();
            if let Some(ending) = state.streams.ending_since(*endings, actor) {
                return NextStep::End(ending);
            }
            if let Some(line) = opening.first.pop_front() {
                return NextStep::Line(line);
            }
            let resource = &opening.filter.resource;
            let mut held_kinds = state.streams.held_kinds.iter();
            let is_kind_held = held_kinds.any(|(held_for, held)| held_for == actor && held == resource);
            let rule = state.streams.rule_for(actor).unwrap_or(&mut no_faults);
            if opening.refused || rule.close_after.is_some_and(|most| *delivered >= most) {
                return NextStep::End(Ending::Closed);
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return NextStep::Timeout;
            }
            if rule.held || is_kind_held {
                return NextStep::Wait(*until);
            }
            while let Some(change) = state.api.store.change(opening.position) {
                let Some(text) = opening.line_of(change) else {
                    opening.position += 1;
                    continue;
                };
                let due = change.at + rule.delay;
                if due > now {
                    return NextStep::Wait(Some(until.map_or(due, |until| until.min(due))));
                }
                opening.position += 1;
                if rule.lose > 0 {
                    rule.lose -= 1;
                    continue;
                }
                *delivered += 1;
                let line = if rule.duplicate { [text.as_ref(), text.as_ref()].concat().into() } else { text };
                return NextStep::Line(line);
            }
            NextStep::Wait(*until)
        })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.server.with(|state| state.streams.open -= 1);
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}
