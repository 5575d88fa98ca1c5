//! Every attack on a decision that goes through the API server, as data: the actor, the request, and the expected
//! answer. The cluster tests send the requests of the table, and the page in the documentation is rendered from the
//! same table.

mod actors;
mod page;
mod request;
mod table;

use std::borrow::Cow;

use serde_json::{Value, json};

pub use actors::{Actor, Token};
use actors::{EVERYBODY, OTHERS, PEOPLE};
pub use page::pages;
pub use request::{Request, Way};
pub use table::CHAPTERS;

/// One rule in words, with all attacks on it.
pub struct Chapter {
    /// One word, for the names of tests.
    pub name: &'static str,
    /// The rule as one sentence, which is the heading on the page.
    pub rule: &'static str,
    /// Returns the lines of the table.
    pub rows: fn() -> Vec<Row>,
}

/// The object that exists before the attack.
#[derive(Clone, Debug)]
pub enum Scene {
    /// An Approval as the operator creates it.
    Approval(Gate),
    /// A Workflow that the requester created with these fields of its spec.
    Workflow(Value),
    /// Any other object: the actor who creates it, the collection's path below the namespace, and the object.
    Object(Actor, &'static str, Value),
    /// No object: the attack creates one.
    Nothing,
}

/// An Approval before the attack.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Fields of the request in addition to those of the plain gate, whose approvers are alice and bob. Fields of a
    /// quorum are those of the first quorum; `further` lists more quorums.
    pub request: Value,
    /// The status that the operator wrote.
    pub status: Option<Value>,
    /// Earlier changes by other actors, as merge patches, in order.
    pub before: Vec<(Actor, Value)>,
    /// Fields of the metadata, as the operator wrote them.
    pub metadata: Value,
    /// Whether the Approval is being deleted and a finalizer holds it.
    pub deleted: bool,
}

/// The rights of the people in a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Every actor holds every verb on Signoff's objects that decides nothing, as a careless administrator might grant.
    /// Only the policies stop an attack.
    Careless,
    /// The roles of the chart and the built-in roles.
    AsShipped,
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The object of the scene.
    Scene,
    /// A subresource of the scene's object, such as `status`.
    Sub(&'static str),
    /// All objects of the kind that have the label of this case.
    All,
    /// A path in which `{namespace}` and `{name}` are filled in.
    Path(&'static str),
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// A change of the object as a merge patch; every [`Way`] writes the same change in its own format. For a create it
    /// is the whole object, for a delete the options.
    Change(Value),
    /// The exact text, for bodies that no serializer would write.
    Text(String),
}

/// The expected answer of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A refusal that contains these words.
    Refused(&'static str),
    /// Success, although no part of the change is stored.
    Ignored,
}

/// A request like the attack that is accepted. It proves that the refusal is due to what the attack changed.
#[derive(Clone, Debug)]
pub struct Twin {
    /// The cell of the page for the accepted request.
    pub what: &'static str,
    /// The actor; without it the actor of the attack.
    pub who: Option<Actor>,
    /// The way; without it the way of the attack.
    pub how: Option<Way>,
    /// The target; without it the target of the attack.
    pub on: Option<Object>,
    /// The body that is accepted.
    pub body: Body,
    /// Words of the expected failure after admission, for requests that need a kubelet to succeed.
    pub reaches: Option<&'static str>,
}

/// One attack by several actors in several ways: a line of the page, and one case for each pair.
#[derive(Clone, Debug)]
pub struct Row {
    /// The attempt, as the rest of a sentence that begins with the actor.
    pub what: Cow<'static, str>,
    /// The object before the attack.
    pub scene: Scene,
    /// The rights of the actors.
    pub ground: Ground,
    /// The actors who try it.
    pub who: Vec<Actor>,
    /// The ways in which they try it.
    pub how: Vec<Way>,
    /// The target of the request.
    pub on: Object,
    /// The body of the request.
    pub body: Body,
    /// Whether the API server refuses unknown and duplicate fields, as kubectl asks it to.
    pub strict: bool,
    /// Whether nothing is stored; for objects that would have an effect.
    pub dry_run: bool,
    /// The expected answer.
    pub answer: Answer,
    /// Words of another rule that also refuses the request: the API server quotes one refusal, in no fixed order.
    pub or: Option<&'static str>,
    /// The request that is accepted instead.
    pub honest: Twin,
}

impl Row {
    /// Returns a row about the plain Approval, on careless ground.
    fn new<const N: usize, const M: usize>(
        what: impl Into<Cow<'static, str>>,
        who: [Actor; N],
        how: [Way; M],
        change: Value,
    ) -> Self {
        Self {
            what: what.into(),
            scene: Scene::Approval(Gate::default()),
            ground: Ground::Careless,
            who: who.into(),
            how: how.into(),
            on: Object::Scene,
            body: Body::Change(change),
            strict: false,
            dry_run: false,
            answer: Answer::Ignored,
            or: None,
            honest: Twin { what: "", who: None, how: None, on: None, body: Body::Change(Value::Null), reaches: None },
        }
    }

    /// Sets the scene: the object that exists before the attack.
    fn with_scene(mut self, scene: Scene) -> Self {
        self.scene = scene;
        self
    }

    /// Sets fields of the request of the scene's Approval.
    fn with_request(self, request: Value) -> Self {
        self.change_gate(|gate| gate.request = request)
    }

    /// Sets the status of the scene's Approval.
    fn with_status(self, status: Value) -> Self {
        self.change_gate(|gate| gate.status = Some(status))
    }

    /// Adds an earlier change of the scene's Approval.
    fn after(self, who: Actor, change: Value) -> Self {
        self.change_gate(|gate| gate.before.push((who, change)))
    }

    fn change_gate(mut self, change: impl FnOnce(&mut Gate)) -> Self {
        if let Scene::Approval(gate) = &mut self.scene {
            change(gate);
        }
        self
    }

    /// Sets the ways in which the actors try the attack.
    fn ways(mut self, how: &[Way]) -> Self {
        self.how = how.to_vec();
        self
    }

    /// Marks the scene's Approval as being deleted.
    fn deleted(self) -> Self {
        self.change_gate(|gate| gate.deleted = true)
    }

    /// Limits the rights to the roles that the chart ships.
    fn shipped_roles(mut self) -> Self {
        self.ground = Ground::AsShipped;
        self
    }

    /// Sets a target other than the object of the scene.
    fn on(mut self, object: Object) -> Self {
        self.on = object;
        self
    }

    /// Sets the exact text of the body.
    fn text(mut self, text: impl Into<String>) -> Self {
        self.body = Body::Text(text.into());
        self
    }

    fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    fn refused(mut self, words: &'static str) -> Self {
        self.answer = Answer::Refused(words);
        self
    }

    /// Adds the words of another rule that also refuses the request.
    fn or(mut self, words: &'static str) -> Self {
        self.or = Some(words);
        self
    }

    /// Sets the request that is accepted from the same person in the same way.
    fn honest(mut self, what: &'static str, change: Value) -> Self {
        self.honest.what = what;
        self.honest.body = Body::Change(change);
        self
    }

    /// Sets the actor of the accepted request.
    fn by(mut self, who: Actor) -> Self {
        self.honest.who = Some(who);
        self
    }

    /// Sets the way of the accepted request.
    fn way(mut self, how: Way) -> Self {
        self.honest.how = Some(how);
        self
    }

    /// Sets the target of the accepted request.
    fn about(mut self, object: Object) -> Self {
        self.honest.on = Some(object);
        self
    }

    /// Expects that the honest request passes admission and fails with these words.
    fn reaches(mut self, words: &'static str) -> Self {
        self.honest.reaches = Some(words);
        self
    }
}

/// One attack by one actor in one way.
#[derive(Clone, Debug)]
pub struct Attack {
    /// A sentence, unique in the table.
    pub name: String,
    /// The sender of the request.
    pub who: Actor,
    /// The verb and the format of the request.
    pub how: Way,
    /// The row of the table from which the attack comes.
    pub row: Row,
}

impl Chapter {
    /// Returns all attacks of the chapter.
    #[must_use]
    pub fn attacks(&self) -> Vec<Attack> {
        let mut attacks = Vec::new();
        for row in (self.rows)() {
            for &who in &row.who {
                for &how in &row.how {
                    let name = format!("{} {}, by {}", who.words(), row.what.trim_end_matches(','), how.words());
                    let ground = if row.ground == Ground::AsShipped { ", with the chart's roles" } else { "" };
                    attacks.push(Attack { name: format!("{name}{ground}"), who, how, row: row.clone() });
                }
            }
        }
        attacks
    }
}

/// The four ways to change an existing object.
pub(crate) const CHANGES: [Way; 4] = [Way::Merge, Way::Json, Way::Apply, Way::Replace];

/// The ways that can remove a field. An apply cannot: it names only the fields that are to exist.
pub(crate) const REMOVALS: [Way; 3] = [Way::Merge, Way::Json, Way::Replace];

/// Returns an entry under the actor's own name.
fn own(decision: Value) -> Value {
    json!({"spec": {"decisions": {"{me}": decision}}})
}

fn approve() -> Value {
    json!({"verdict": "Approve"})
}

/// Returns an approver by user name.
fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// Returns an approver by group.
fn group(name: &str) -> Value {
    json!({"kind": "Group", "name": name})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_attack_has_a_unique_name_and_an_honest_twin() {
        for chapter in CHAPTERS {
            let mut names = BTreeSet::new();
            for attack in chapter.attacks() {
                assert!(names.insert(attack.name.clone()), "{}: {} twice", chapter.name, attack.name);
                assert!(!attack.row.honest.what.is_empty(), "{}: {} has no honest twin", chapter.name, attack.name);
            }
        }
    }

    #[test]
    fn there_are_at_least_three_hundred_attacks() {
        let count: usize = CHAPTERS.iter().map(|chapter| chapter.attacks().len()).sum();
        assert!(count >= 300, "{count}");
    }
}
