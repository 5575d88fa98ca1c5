//! The turns of one step of an agent: the path of each, and the messages of earlier turns for the next one.
//!
//! **Invariant:** a model receives a turn with all its calls and results, or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use serde_json::Value;
use signoff_api::{RecordPath, Seq};

use super::catalogue::Offered;
use crate::{
    replay::{
        run::Run,
        step_invocation::StepInvocation,
        tool_turn::{MEMORY, ToolTurn, left_out},
    },
    tools::{names, question},
    transition::{Message, Role, ToolOffer},
};

/// One turn of a step.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// The path of the turn's record. The first turn has the path of the step.
    pub(super) path: String,
    /// The number of the turn, from 1.
    pub(super) number: i32,
    /// The number of the last attempt at the first turn.
    first_attempts: i32,
}

impl Turn {
    pub(super) fn first(base: &str) -> Self {
        Self { path: base.to_owned(), number: 1, first_attempts: 0 }
    }

    /// Returns the next turn. `attempt` is the number of the successful attempt at this turn.
    pub(super) fn next(&self, run: &Run<'_>, base: &str, attempt: i32) -> Self {
        let number = self.number + 1;
        let (path, _) = run.visit(&RecordPath::new(base).turn(number));
        let first_attempts = if self.number == 1 { attempt } else { self.first_attempts };
        Self { path, number, first_attempts }
    }

    /// Returns the path before `.call-1`, `.call-2`, …
    pub(super) fn path_of_calls(&self, run: &Run<'_>, base: &str) -> String {
        if self.number == 1 { run.visit(&RecordPath::new(base).turn(1)).0 } else { self.path.clone() }
    }

    /// Returns the number of the attempt with which the step starts again after `attempt` at this turn.
    pub(super) fn attempt_after(&self, attempt: i32) -> i32 {
        if self.number == 1 { attempt + 1 } else { self.first_attempts + 1 }
    }
}

impl StepInvocation<'_> {
    /// Adds a turn that called tools. `began` is the number of the event that started it.
    pub(super) fn continue_with(&mut self, done: Rc<ToolTurn>, began: Seq) {
        let heard = self.feedback_before(began);
        self.first_heard.get_or_insert(heard);
        self.turns.push(done);
    }
}

/// Returns the tools as they are offered to the model.
pub(super) fn to_offers(tools: &[Offered<'_>]) -> Vec<ToolOffer> {
    let offer = |offered: &Offered<'_>| match offered {
        Offered::Tool(tool) => ToolOffer {
            name: names::wire(&tool.name),
            description: tool.description.clone(),
            parameters: Value::Object(tool.parameters.0.clone()),
        },
        Offered::BuiltIn(name) => ToolOffer {
            name: names::wire(name),
            description: question::description(name).to_owned(),
            parameters: question::parameters(name),
        },
    };
    tools.iter().map(offer).collect()
}

/// Returns the number of the oldest turns that are left out of a conversation of at most [`MEMORY`] bytes.
fn count_dropped(turns: &[Rc<ToolTurn>]) -> usize {
    let mut room = MEMORY;
    let fits = |turn: &&Rc<ToolTurn>| match room.checked_sub(turn.bytes()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    // The newest turn is always included, because its calls wait for their results.
    let kept = turns.iter().rev().take_while(fits).count().max(1).min(turns.len());
    turns.len() - kept
}

/// Returns the paths of the calls of which the model receives the arguments and results. Turns and arguments that are
/// left out are not included.
pub(super) fn known_calls(turns: &[Rc<ToolTurn>]) -> BTreeSet<String> {
    turns.iter().skip(count_dropped(turns)).flat_map(|turn| turn.told.iter().cloned()).collect()
}

/// Adds turns to a conversation, the oldest first. If they have more than [`MEMORY`] bytes, the oldest are left out.
pub(super) fn push(messages: &mut Vec<Message>, turns: &[Rc<ToolTurn>]) {
    let dropped = count_dropped(turns);
    if dropped > 0 {
        messages.push(left_out(dropped));
    }
    for turn in turns.iter().skip(dropped) {
        messages.extend(turn.messages());
    }
}

/// Adds turns to a conversation that is built backwards.
pub(super) fn push_reversed(messages: &mut Vec<Message>, turns: &[Rc<ToolTurn>]) {
    for turn in turns.iter().rev() {
        messages.extend(turn.messages().into_iter().rev());
    }
}

/// Gives each call of a conversation a unique id. Models repeat ids from turn to turn, and also between the steps that
/// an agent remembers.
pub(super) fn make_ids_unique(messages: &mut [Message]) {
    let (mut used, mut renamed, mut numbers) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for message in messages {
        if let Some(id) = &mut message.answers {
            if let Some(other) = renamed.get(id) {
                String::clone_from(id, other);
            }
            continue;
        }
        renamed.clear();
        for call in &mut message.calls {
            let mut id = call.id.clone();
            // Every lower number of this id is used.
            let number = numbers.entry(id.clone()).or_insert(1);
            while !used.insert(id.clone()) {
                *number += 1;
                id = format!("{}-{number}", call.id);
            }
            let own = std::mem::replace(&mut call.id, id.clone());
            renamed.insert(own, id);
        }
    }
}

pub(super) fn bytes(turns: &[Rc<ToolTurn>]) -> usize {
    turns.iter().map(|turn| turn.bytes()).sum()
}

impl ToolTurn {
    fn bytes(&self) -> usize {
        let calls: usize =
            self.calls.iter().map(|call| call.id.len() * 2 + call.tool.len() + call.arguments.len()).sum();
        let opaque = self.opaque.as_ref().map_or(0, |opaque| opaque.bytes());
        self.text.len() + calls + opaque + self.results.iter().map(String::len).sum::<usize>()
    }

    /// Returns the message of the model with its calls, and the result of each.
    fn messages(&self) -> Vec<Message> {
        let said = Message::text(Role::Assistant, self.text.clone());
        let said = Message { calls: self.calls.clone(), opaque: self.opaque.clone(), ..said };
        let results =
            self.calls.iter().zip(&self.results).map(|(call, text)| Message::result(call.id.clone(), text.clone()));
        std::iter::once(said).chain(results).collect()
    }
}
