//! Every attack on a decision that goes through the API server, as data: who tries what, how, and what is answered.
//! It must not send anything, and knows no cluster: the cluster tests carry the table out, and the page in the
//! documentation is rendered from it, so that the two can never differ.

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

/// One rule in words, with everything that is tried against it.
pub struct Chapter {
    /// A name for tests: one word.
    pub name: &'static str,
    /// The rule: a sentence.
    pub rule: &'static str,
    /// The rows, made anew at every call.
    pub rows: fn() -> Vec<Row>,
}

/// What is there before the attack.
#[derive(Clone, Debug)]
pub enum Scene {
    /// An Approval as the operator makes it.
    Approval(Gate),
    /// A Workflow, asked for by the requester with these fields of its spec.
    Workflow(Value),
    /// Any other object, made by this actor: the collection's path below the namespace, and the object.
    Object(Actor, &'static str, Value),
    /// Nothing: the attack makes something.
    Nothing,
}

/// An Approval before the attack.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Fields of the request over the plain one, which asks alice and bob. Those of a quorum are its first quorum's;
    /// `further` lists more quorums.
    pub request: Value,
    /// What the operator wrote into the status.
    pub status: Option<Value>,
    /// What others did before, as merge patches, in order.
    pub before: Vec<(Actor, Value)>,
    /// Fields of the metadata, as the operator made them.
    pub metadata: Value,
    /// It is on its way out, held by a finalizer.
    pub deleted: bool,
}

/// What rights the people of the scene hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Everybody holds every verb on Signoff's objects that decides nothing, as a careless administrator might grant:
    /// the policies alone stand in the way.
    Careless,
    /// The roles of the chart, and the built-in ones.
    AsShipped,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The object of the scene.
    Scene,
    /// A subresource of it.
    Sub(&'static str),
    /// All objects of the kind that carry this case's label.
    All,
    /// A path of its own; `{namespace}` and `{name}` are filled in.
    Path(&'static str),
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Body {
    /// A change of the object as a merge patch says it; every [`Way`] says the same in its own terms.
    /// For a create: the whole object. For a delete: its options.
    Change(Value),
    /// These very bytes: what no serialiser would write.
    Text(String),
}

/// What the API server is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A refusal with these words in it.
    Refused(&'static str),
    /// Yes, and nothing of it is stored.
    Ignored,
}

/// What is accepted: an attack that is refused proves nothing where everything is.
#[derive(Clone, Debug)]
pub struct Twin {
    /// What it is, in words.
    pub what: &'static str,
    /// Who; without it: the attacker.
    pub who: Option<Actor>,
    /// How; without it: as the attack.
    pub how: Option<Way>,
    /// About what; without it: what the attack was about.
    pub on: Option<Object>,
    /// What is sent.
    pub body: Body,
    /// Instead of success: the words that tell that admission let it pass, where no kubelet could answer.
    pub reaches: Option<&'static str>,
}

/// One attack by everybody who may try it, in every way: a line of the page, and one case for each pair.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is tried, as the rest of a sentence that begins with who tries it.
    pub what: Cow<'static, str>,
    /// Before the attack.
    pub scene: Scene,
    /// On what ground.
    pub ground: Ground,
    /// Who tries it.
    pub who: Vec<Actor>,
    /// In which ways.
    pub how: Vec<Way>,
    /// About what.
    pub on: Object,
    /// What is sent.
    pub body: Body,
    /// Asks the API server to refuse unknown and doubled fields, as kubectl does.
    pub strict: bool,
    /// Asks for everything but the storing: for objects that would act.
    pub dry_run: bool,
    /// What is answered.
    pub answer: Answer,
    /// Words of another rule that refuses it too: the API server quotes one of those that refuse, in no fixed order.
    pub or: Option<&'static str>,
    /// What is accepted instead.
    pub honest: Twin,
}

impl Row {
    /// A row about the plain Approval, on careless ground.
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

    /// Another scene.
    fn given(mut self, scene: Scene) -> Self {
        self.scene = scene;
        self
    }

    /// The Approval of the scene with these fields of its request.
    fn asked(self, request: Value) -> Self {
        self.gate(|gate| gate.request = request)
    }

    /// The Approval of the scene with this status.
    fn stands(self, status: Value) -> Self {
        self.gate(|gate| gate.status = Some(status))
    }

    /// Somebody changed the Approval of the scene before.
    fn after(self, who: Actor, change: Value) -> Self {
        self.gate(|gate| gate.before.push((who, change)))
    }

    fn gate(mut self, change: impl FnOnce(&mut Gate)) -> Self {
        if let Scene::Approval(gate) = &mut self.scene {
            change(gate);
        }
        self
    }

    /// In these ways instead.
    fn ways(mut self, how: &[Way]) -> Self {
        self.how = how.to_vec();
        self
    }

    /// The Approval of the scene is on its way out.
    fn deleted(self) -> Self {
        self.gate(|gate| gate.deleted = true)
    }

    /// With the roles that the chart ships only.
    fn shipped_roles(mut self) -> Self {
        self.ground = Ground::AsShipped;
        self
    }

    /// About something else than the object of the scene.
    fn on(mut self, object: Object) -> Self {
        self.on = object;
        self
    }

    /// These very bytes.
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

    /// Another rule refuses it too, with these words.
    fn or(mut self, words: &'static str) -> Self {
        self.or = Some(words);
        self
    }

    /// What is accepted from the same person in the same way.
    fn honest(mut self, what: &'static str, change: Value) -> Self {
        self.honest.what = what;
        self.honest.body = Body::Change(change);
        self
    }

    /// It is accepted from somebody else.
    fn by(mut self, who: Actor) -> Self {
        self.honest.who = Some(who);
        self
    }

    /// It is accepted in another way.
    fn way(mut self, how: Way) -> Self {
        self.honest.how = Some(how);
        self
    }

    /// It is accepted about something else.
    fn about(mut self, object: Object) -> Self {
        self.honest.on = Some(object);
        self
    }

    /// It gets past admission and ends with these words.
    fn reaches(mut self, words: &'static str) -> Self {
        self.honest.reaches = Some(words);
        self
    }
}

/// One attack by one actor in one way.
#[derive(Clone, Debug)]
pub struct Attack {
    /// A sentence; no two are alike.
    pub name: String,
    /// Who tries it.
    pub who: Actor,
    /// In which way.
    pub how: Way,
    /// All the rest.
    pub row: Row,
}

impl Chapter {
    /// Every attack of the chapter.
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

/// The four ways to change what is there.
pub(crate) const CHANGES: [Way; 4] = [Way::Merge, Way::Json, Way::Apply, Way::Replace];

/// The ways that can take something away: what one applies says what is to be there.
pub(crate) const REMOVALS: [Way; 3] = [Way::Merge, Way::Json, Way::Replace];

/// An entry under one's own name.
fn own(decision: Value) -> Value {
    json!({"spec": {"decisions": {"{me}": decision}}})
}

fn approve() -> Value {
    json!({"verdict": "Approve"})
}

/// An approver by user name.
fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// An approver by group.
fn group(name: &str) -> Value {
    json!({"kind": "Group", "name": name})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_attacks_have_one_name_and_each_has_an_honest_twin() {
        for chapter in CHAPTERS {
            let mut names = BTreeSet::new();
            for attack in chapter.attacks() {
                assert!(names.insert(attack.name.clone()), "{}: {} twice", chapter.name, attack.name);
                assert!(!attack.row.honest.what.is_empty(), "{}: {} has no honest twin", chapter.name, attack.name);
            }
        }
    }

    #[test]
    fn there_are_several_hundred() {
        let count: usize = CHAPTERS.iter().map(|chapter| chapter.attacks().len()).sum();
        assert!(count >= 300, "{count}");
    }
}
